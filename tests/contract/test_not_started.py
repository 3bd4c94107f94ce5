# SPDX-License-Identifier: Apache-2.0
"""Commands that cannot be executed: the cause is told and no record is left."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.contract.probes import executions, refused
from tests.harness import Daemon


def put(daemon: Daemon, sandbox: Any, name: str, content: str, mode: str) -> None:
    ran = daemon.execute(sandbox["id"], f"cat > {name}; chmod {mode} {name}", stdin=content)
    assert ran["exit_code"] == 0


def not_started(daemon: Daemon, sandbox: Any, **body: Any) -> Any:
    """The error's details; no record may be left."""
    before = daemon.ok("GET", executions(sandbox))["executions"]
    error = refused(daemon.request("POST", executions(sandbox), body), 422, "EXECUTION_NOT_STARTED")
    assert daemon.ok("GET", executions(sandbox))["executions"] == before
    assert error["details"]
    assert daemon.execute(sandbox["id"], ["true"])["exit_code"] == 0
    return error


@pytest.mark.parametrize("argv", [["no-such-command"], ["/no/such"], ["./no-such"]])
def test_a_command_that_is_not_there(daemon: Daemon, sandbox: Any, argv: list[str]) -> None:
    error = not_started(daemon, sandbox, argv=argv)
    assert argv[0] in error["message"]
    assert error["details"]["errno"] == errno.ENOENT
    assert "interpreter" not in error["details"]
    for word in ("home is empty", "sandboxctl cp", "-i", "sh -c"):
        assert word in error["hint"]
    not_started(daemon, sandbox, argv=argv, wait=False)


@pytest.mark.parametrize("path", ["/etc/passwd", "./plain", "/usr"])
def test_a_file_that_is_not_executable(daemon: Daemon, sandbox: Any, path: str) -> None:
    put(daemon, sandbox, "plain", "#!/bin/sh\n", "0644")
    error = not_started(daemon, sandbox, argv=[path])
    assert error["details"]["errno"] == errno.EACCES
    assert "Permission denied" in error["message"]


def test_a_script_with_crlf_lines(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "crlf", "#!/bin/sh\r\necho hi\r\n", "0755")
    error = not_started(daemon, sandbox, argv=["./crlf"])
    assert "'/bin/sh\\r'" in error["message"]
    assert "CR LF" in error["hint"]


def test_a_script_of_a_missing_interpreter(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "lost", "#!/no/such/interpreter -x\n", "0755")
    home = daemon.execute(sandbox["id"], ["pwd"])["stdout"].strip()
    for argv, env in ((["./lost"], {}), (["lost"], {"PATH": f"/bin:{home}"})):
        error = not_started(daemon, sandbox, argv=argv, env=env)
        assert "for want of its interpreter, '/no/such/interpreter'" in error["message"]
        assert error["details"]["interpreter"] == "/no/such/interpreter"
        assert "the program is there" in error["hint"]


def test_an_interpreter_that_may_not_be_executed(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "lost", "#!/etc/passwd\n", "0755")
    error = not_started(daemon, sandbox, argv=["./lost"])
    assert (error["details"]["interpreter"], error["details"]["errno"]) == (
        "/etc/passwd", errno.EACCES,
    )  # fmt: skip


def test_a_script_that_would_write_to_who_reads_the_error(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "odd", "#!/\x1b[2J\x07" + "x" * 200 + "\n", "0755")
    error = not_started(daemon, sandbox, argv=["./odd"])
    assert "\x1b" not in error["message"]
    assert len(error["details"]["interpreter"]) <= 128


def test_a_program_of_another_c_library(daemon: Daemon, sandbox: Any) -> None:
    script = "cp /bin/true other && sed -i 's#/lib\\(64\\)\\?/ld-#/lib\\1/xx-#' other"
    assert daemon.execute(sandbox["id"], script)["exit_code"] == 0
    error = not_started(daemon, sandbox, argv=["./other"])
    assert (error["details"]["errno"], error["details"]["interpreter"]) == (
        errno.ENOENT, "the loader of its ELF header",
    )  # fmt: skip


def test_a_file_of_no_known_format(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "odd", "\x7fELF no, not at all", "0755")
    error = not_started(daemon, sandbox, argv=["./odd"])
    assert error["details"]["errno"] == errno.ENOEXEC


@pytest.mark.parametrize("cwd", ["no/such", "/no/such", "plain"])
def test_a_working_directory_that_is_none(daemon: Daemon, sandbox: Any, cwd: str) -> None:
    put(daemon, sandbox, "plain", "x", "0644")
    error = not_started(daemon, sandbox, argv=["true"], cwd=cwd)
    assert cwd in error["message"]


@pytest.mark.usefixtures("requires_root")
def test_a_working_directory_that_may_not_be_entered(daemon: Daemon, sandbox: Any) -> None:
    error = not_started(daemon, sandbox, argv=["true"], cwd="/root")
    assert "/root" in error["message"]


def test_a_shell_s_missing_command_is_the_shell_s_answer(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], "no-such-command")
    assert (ran["status"], ran["exit_code"]) == ("EXITED", 127)
    assert "no-such-command" in ran["stderr"]


def test_a_path_of_the_sandbox_s_own_is_searched(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "mine", "#!/bin/sh\necho mine\n", "0755")
    home = daemon.execute(sandbox["id"], ["pwd"])["stdout"].strip()
    ran = daemon.execute(sandbox["id"], ["mine"], env={"PATH": f"{home}:/bin"})
    assert ran["stdout"] == "mine\n"
