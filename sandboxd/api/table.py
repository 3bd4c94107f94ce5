# SPDX-License-Identifier: Apache-2.0
"""The table of all routes, from which routing, validation and the OpenAPI document are made."""

from __future__ import annotations

from sandboxd import errors
from sandboxd.api import (
    attach,
    events,
    execution_events,
    executions,
    files,
    history,
    host,
    inputs,
    metrics,
    output,
    sandboxes,
)
from sandboxd.api.routes import LARGE_BODY_BYTES, Access, AnyRoute, Route
from sandboxd.wire import answers
from sandboxd.wire import files as f
from sandboxd.wire import history as h
from sandboxd.wire import host as host_answers
from sandboxd.wire import metrics as m
from sandboxd.wire import queries as q
from sandboxd.wire import requests as r

_SANDBOX = "/v1/sandboxes/{sandbox}"
_EXECUTIONS = f"{_SANDBOX}/executions"
_EXECUTION = f"{_EXECUTIONS}/{{execution}}"

_FILES = f"{_SANDBOX}/files/{{path}}"
_DIRECTORIES = f"{_SANDBOX}/directories/{{path}}"
_ARCHIVE = f"{_SANDBOX}/archive/{{path}}"

_LIMITS = (errors.LimitTooSmall, errors.LimitTooLarge)
_SCHEME = (errors.SchemeError, errors.BusUnavailable, errors.OperationTimedOut)
_NEW_SANDBOX = (
    *_LIMITS,
    errors.LimitUnsupported,
    errors.IsolationUnsupported,
    errors.AccessDenied,
    errors.NameInUse,
    errors.QuotaExceeded,
    errors.CapacityExceeded,
    errors.HostDiskFull,
    errors.HostStorageFailed,
    errors.Draining,
    *_SCHEME,
)
_NEW_EXECUTION = (
    *_LIMITS,
    errors.SandboxSuspended,
    errors.SandboxReleased,
    errors.ExecutionNotStarted,
    errors.ExecutionLimitReached,
    errors.QuotaExceeded,
    errors.CapacityExceeded,
    errors.HostDiskFull,
    errors.HostStorageFailed,
    errors.Draining,
    *_SCHEME,
)
_FILE = (
    errors.SandboxNotFound,
    errors.SandboxReleased,
    errors.FileMissing,
    errors.FileConflict,
    errors.QuotaExceeded,
)
_WRITTEN = (
    *_FILE,
    errors.DiskQuotaExceeded,
    errors.DiskUncountable,
    errors.HostDiskFull,
    errors.HostStorageFailed,
)
# Errors of files that are written before a run.
_RUN_FILES = (errors.FileConflict, errors.DiskQuotaExceeded, errors.DiskUncountable)
_INPUT = (
    errors.SandboxNotFound,
    errors.ExecutionNotFound,
    errors.ExecutionFinished,
    errors.StdinClosed,
    errors.QuotaExceeded,
    errors.Draining,
    errors.OperationTimedOut,
)
_STARTED = {
    200: "the finished execution",
    201: "with wait: false, or where it runs on after the wait, the running execution",
}

ROUTES: tuple[AnyRoute, ...] = (
    Route(
        "POST", "/v1/sandboxes", sandboxes.create_sandbox, "Create a sandbox",
        body=r.CreateSandbox, query=r.Nothing, answer=answers.SandboxAnswer,
        statuses={201: "the sandbox, ready"}, errors=_NEW_SANDBOX,
        max_body_bytes=LARGE_BODY_BYTES,
    ),
    Route(
        "GET", "/v1/sandboxes", sandboxes.list_sandboxes, "List the caller's sandboxes",
        body=r.Nothing, query=q.SandboxesQuery, answer=answers.SandboxList,
        statuses={200: "a page of sandboxes, oldest first"},
    ),
    Route(
        "GET", _SANDBOX, sandboxes.get_sandbox, "Read a sandbox",
        body=r.Nothing, query=r.Nothing, answer=answers.SandboxAnswer,
        statuses={200: "the sandbox"}, errors=(errors.SandboxNotFound,),
    ),
    Route(
        "GET", f"{_SANDBOX}/metrics", sandboxes.get_metrics, "What a sandbox uses and has used",
        body=r.Nothing, query=q.MetricsQuery, answer=m.MetricsAnswer,
        statuses={200: "null where this host cannot know"}, errors=(errors.SandboxNotFound,),
    ),
    Route(
        "PATCH", _SANDBOX, sandboxes.change_sandbox,
        "Change limits, metadata and deadlines, running executions included",
        body=r.ChangeSandbox, query=r.Nothing, answer=answers.SandboxAnswer,
        statuses={200: "the sandbox as it is now"},
        errors=(
            *_LIMITS, errors.SandboxNotFound, errors.SandboxReleased, errors.LimitBelowUsage,
            errors.QuotaExceeded, errors.CapacityExceeded, errors.HostDiskFull,
            errors.HostStorageFailed, *_SCHEME,
        ),
        max_body_bytes=1 << 20,
    ),
    Route(
        "DELETE", _SANDBOX, sandboxes.release_sandbox,
        "Release a sandbox: kill all in it, remove it; answers once it is gone",
        body=r.Nothing, query=r.Nothing, answer=None,
        statuses={204: "it is gone; also the second time"},
        errors=(errors.SandboxNotFound, *_SCHEME),
    ),
    Route(
        "POST", f"{_SANDBOX}/suspend", sandboxes.suspend_sandbox, "Freeze every process in it",
        body=r.Nothing, query=r.Nothing, answer=answers.SandboxAnswer,
        statuses={200: "the suspended sandbox"},
        errors=(errors.SandboxNotFound, errors.SandboxReleased, *_SCHEME),
    ),
    Route(
        "POST", f"{_SANDBOX}/resume", sandboxes.resume_sandbox, "Let its processes go on",
        body=r.Nothing, query=r.Nothing, answer=answers.SandboxAnswer,
        statuses={200: "the sandbox, ready"},
        errors=(errors.SandboxNotFound, errors.SandboxReleased, *_SCHEME),
    ),
    Route(
        "POST", _EXECUTIONS, executions.start_execution, "Run a command in a sandbox",
        body=r.StartExecution, query=r.Nothing, answer=answers.ExecutionAnswer,
        statuses=_STARTED, errors=(errors.SandboxNotFound, *_NEW_EXECUTION),
        max_body_bytes=LARGE_BODY_BYTES,
    ),
    Route(
        "GET", _EXECUTIONS, executions.list_executions, "List a sandbox's executions",
        body=r.Nothing, query=q.ExecutionsQuery, answer=answers.ExecutionList,
        statuses={200: "a page of executions, oldest first, without their output"},
        errors=(errors.SandboxNotFound,),
    ),
    Route(
        "GET", _EXECUTION, executions.get_execution, "Read an execution, or wait for its end",
        body=r.Nothing, query=q.WaitQuery, answer=answers.ExecutionAnswer,
        statuses={200: "the execution"},
        errors=(errors.SandboxNotFound, errors.ExecutionNotFound, errors.Draining),
    ),
    Route(
        "POST", f"{_EXECUTION}/kill", executions.kill_execution,
        "End an execution, or only send it a signal",
        body=r.KillExecution, query=r.Nothing, answer=answers.ExecutionAnswer,
        statuses={200: "the execution"},
        errors=(
            errors.SandboxNotFound, errors.ExecutionNotFound, errors.ExecutionFinished, *_SCHEME,
        ),
    ),
    Route(
        "POST", f"{_EXECUTION}/stdin", inputs.write_input,
        "Write to standard input, as fast as the program reads it",
        body=r.Nothing, query=r.Nothing, answer=answers.InputAnswer,
        statuses={200: "all of it is the program's"}, errors=_INPUT, streams_body=True,
    ),
    Route(
        "POST", f"{_EXECUTION}/stdin/close", inputs.close_input,
        "End standard input, after all that is being written",
        body=r.Nothing, query=r.Nothing, answer=None,
        statuses={204: "it is ended; also the second time"}, errors=_INPUT,
    ),
    Route(
        "POST", f"{_EXECUTION}/resize", inputs.resize_terminal, "Change the size of the terminal",
        body=r.TerminalBody, query=r.Nothing, answer=None,
        statuses={204: "it has this size"},
        errors=(
            errors.SandboxNotFound, errors.ExecutionNotFound, errors.ExecutionFinished,
            errors.OperationTimedOut,
        ),
    ),
    Route(
        "GET", f"{_EXECUTION}/output", output.read_output,
        "Read what was printed, so far or to the end",
        body=r.Nothing, query=q.OutputQuery, answer=None,
        statuses={200: "the bytes from the offset on; X-Output-Offset is that of the first"},
        raw_type="application/octet-stream",
        errors=(
            errors.SandboxNotFound, errors.ExecutionNotFound, errors.RangeNotSatisfiable,
            errors.OutputTimesUnknown, errors.QuotaExceeded, errors.Draining,
        ),
    ),
    Route(
        "GET", _FILES, files.read_file, "Read a file of the sandbox's home",
        body=r.Nothing, query=r.Nothing, answer=None, raw_type="application/octet-stream",
        statuses={200: "its bytes", 206: "the range of them that was asked for"},
        errors=(*_FILE, errors.RangeNotSatisfiable),
    ),
    Route(
        "HEAD", _FILES, files.look_at_file, "Look at a file or directory",
        body=r.Nothing, query=r.Nothing, answer=None,
        statuses={200: "what it is: see Content-Length, Last-Modified, X-File-Type, X-File-Mode"},
        errors=_FILE,
    ),
    Route(
        "PUT", _FILES, files.write_file, "Write a file: the body, whole or not at all",
        body=r.Nothing, query=f.WriteQuery, answer=None, streams_body=True,
        statuses={201: "it is new", 204: "it took the place of another"},
        errors=(*_WRITTEN, errors.OperationTimedOut),
    ),
    Route(
        "DELETE", _FILES, files.delete_file, "Delete a file, or a directory and all below it",
        body=r.Nothing, query=r.Nothing, answer=None, statuses={204: "it is gone"},
        errors=(*_FILE, errors.Draining),
    ),
    Route(
        "POST", _FILES, files.change_file, "Make a directory, or rename something",
        body=r.Nothing, query=f.ChangeQuery, answer=None,
        statuses={201: "the directory is there", 204: "it is renamed"},
        errors=(*_WRITTEN, errors.Draining),
    ),
    Route(
        "GET", _DIRECTORIES, files.list_directory, "List a directory",
        body=r.Nothing, query=f.ListQuery, answer=f.DirectoryAnswer,
        statuses={200: "what is below it, by path"}, errors=_FILE,
    ),
    Route(
        "GET", _ARCHIVE, files.read_archive, "Read a directory or a file as tar",
        body=r.Nothing, query=r.Nothing, answer=None, raw_type="application/x-tar",
        statuses={200: "a tar stream"}, errors=_FILE,
    ),
    Route(
        "PUT", _ARCHIVE, files.write_archive, "Unpack a tar stream into a directory",
        body=r.Nothing, query=r.Nothing, answer=None, streams_body=True,
        statuses={204: "all of it is unpacked"}, errors=(*_WRITTEN, errors.OperationTimedOut),
    ),
    Route(
        "GET", f"{_EXECUTION}/events", execution_events.follow_execution,
        "Follow output and end as Server-Sent Events, resumable with Last-Event-ID",
        body=r.Nothing, query=q.ExecutionEventsQuery, answer=None, event_data=answers.OutputEvent,
        statuses={
            200: "events stdout and stderr, and exit with the execution",
            204: "all was told, the end too",
        },
        errors=(
            errors.SandboxNotFound, errors.ExecutionNotFound, errors.RangeNotSatisfiable,
            errors.OutputTimesUnknown, errors.QuotaExceeded, errors.Draining,
        ),
    ),
    Route(
        "GET", f"{_EXECUTION}/attach", attach.attach,
        "Attach to all streams of an execution by WebSocket",
        body=r.Nothing, query=q.AttachQuery, answer=None,
        statuses={101: "the WebSocket"},
        errors=(
            errors.SandboxNotFound, errors.ExecutionNotFound, errors.RangeNotSatisfiable,
            errors.QuotaExceeded, errors.Draining,
        ),
    ),
    Route(
        "GET", "/v1/executions", executions.list_executions, "List the caller's executions",
        body=r.Nothing, query=q.ExecutionsQuery, answer=answers.ExecutionList,
        statuses={200: "a page of executions, oldest first, without their output"},
    ),
    Route(
        "POST", "/v1/run", executions.run, "Run a command in a sandbox of its own",
        body=r.Run, query=r.Nothing, answer=f.RunAnswer,
        statuses=_STARTED,
        errors=tuple(dict.fromkeys((*_NEW_SANDBOX, *_NEW_EXECUTION, *_RUN_FILES))),
        max_body_bytes=LARGE_BODY_BYTES,
    ),
    Route(
        "GET", "/v1/events", events.follow_events,
        "Follow what happens to the caller's sandboxes and executions",
        body=r.Nothing, query=r.Nothing, answer=None,
        statuses={200: "Server-Sent Events; the data of each is an EventAnswer"},
        raw_type="text/event-stream", errors=(errors.Draining, errors.QuotaExceeded),
        headers={"Last-Event-ID": "id of the last event seen: go on after it"},
        event_data=host_answers.EventAnswer,
    ),
    Route(
        "GET", "/v1/history", history.get_history,
        "What was used, how executions ended and what was refused, over time",
        body=r.Nothing, query=h.HistoryQuery, answer=h.HistoryAnswer,
        statuses={200: "sums over all the caller may see, and by owner"},
    ),
    Route(
        "GET", "/v1/host", host.get_host, "What this host can do, and how much of it is taken",
        body=r.Nothing, query=r.Nothing, answer=host_answers.HostAnswer,
        statuses={200: "the host"},
    ),
    Route(
        "GET", "/metrics", metrics.get_metrics, "Sums over all that the caller may see",
        body=r.Nothing, query=r.Nothing, answer=None,
        statuses={200: "Prometheus text format 0.0.4; admins see the daemon's own counters, too"},
        raw_type="text/plain",
    ),
    Route(
        "POST", "/v1/host/drain", host.drain, "Take no new work, over restarts too",
        body=r.Nothing, query=r.Nothing, answer=host_answers.HostAnswer,
        statuses={200: "the host; executions_running says what is still to end"},
        errors=(errors.HostDiskFull, errors.HostStorageFailed), access=Access.ADMIN,
    ),
    Route(
        "POST", "/v1/host/undrain", host.undrain, "Take work again",
        body=r.Nothing, query=r.Nothing, answer=host_answers.HostAnswer,
        statuses={200: "the host"}, access=Access.ADMIN,
        errors=(errors.HostDiskFull, errors.HostStorageFailed),
    ),
    Route(
        "GET", "/healthz", host.health, "Whether the daemon answers, and what holds limits here",
        body=r.Nothing, query=r.Nothing, answer=host_answers.HealthAnswer,
        statuses={200: "it does"}, access=Access.ANYONE,
    ),
    Route(
        "GET", "/readyz", host.readiness, "Whether the daemon takes work",
        body=r.Nothing, query=r.Nothing, answer=host_answers.ReadyAnswer,
        statuses={200: "it does"}, errors=(errors.Draining,), access=Access.ANYONE,
    ),
)  # fmt: skip
