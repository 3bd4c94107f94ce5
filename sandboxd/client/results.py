# SPDX-License-Identifier: Apache-2.0
"""Values that the clients return."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from sandboxd.client.exit_status import exit_status
from sandboxd.client.file_routes import native_path
from sandboxd.client.refusals import of_code
from sandboxd.core.model import Usage
from sandboxd.errors import SandboxdError


class Output(NamedTuple):
    """A piece of an execution's output; `text` is `data` decoded without splitting a character."""

    stream: str
    text: str
    data: bytes


class TimedOutput(NamedTuple):
    """A piece of an execution's output with the arrival time in UTC; None = unknown."""

    stream: str
    text: str
    data: bytes
    at: datetime | None


# Characters of each stream in a repr.
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True, repr=False)
class ReadFile:
    """A file's content after a run.

    mode: permission bits. error: why the file could not be read; `data` and `text` then raise
    `error`.
    """

    path: str
    mode: int | None
    error: SandboxdError | None
    content: bytes

    @property
    def data(self) -> bytes:
        """The file's bytes. Raises `error`."""
        if self.error is not None:
            raise self.error
        return self.content

    @property
    def text(self) -> str:
        """The file's text; bytes that are not UTF-8 are replaced. Raises `error`."""
        return self.data.decode("utf-8", "replace")

    def __repr__(self) -> str:
        how = f"{len(self.content)} bytes" if self.error is None else self.error.code
        return f"<{type(self).__name__} {self.path} {how}>"

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> ReadFile:
        """Make a file from the API's answer."""
        if (error := answer["error"]) is not None:
            return cls(answer["path"], None, of_code(error["code"], error["message"]), b"")
        encoded = answer["base64"]
        content = answer["text"].encode() if encoded is None else base64.b64decode(encoded)
        return cls(answer["path"], int(answer["mode"], 8), None, content)


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """A finished execution. `raw` is the API's answer (docs/api.md).

    exit_code: None unless the command ended by itself. signal: the signal that ended the command.
    error_code and limit_owner: the limit that ended the command and the limit's owner, else None.
    files: by the paths given to `once` as `read_files`.
    """

    id: str
    sandbox_id: str
    status: str
    exit_code: int | None
    signal: int | None
    error_code: str | None
    limit_owner: str | None
    stdout_bytes: bytes
    stderr_bytes: bytes
    usage: Usage
    raw: Mapping[str, Any]
    files: Mapping[str, ReadFile] = field(default_factory=dict)

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are not UTF-8 are replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with exit code 0."""
        return self.status == "EXITED" and self.exit_code == 0

    @property
    def returncode(self) -> int:
        """The exit code as in a shell: the command's own, or 128 plus the signal's number.

        137 if a limit, a kill or a release ended the command, by any signal; 125 if the command
        could not be set up or the end is unknown.
        """
        return exit_status(self.raw)

    def __repr__(self) -> str:
        parts = [self.status, f"returncode={self.returncode}"]
        parts += [self.error_code] if self.error_code else []
        for name, data in (("stdout", self.stdout_bytes), ("stderr", self.stderr_bytes)):
            text = data[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace")[:_SHOWN_CHARACTERS]
            more = f"... of {len(data)} bytes" if len(text.encode()) < len(data) else ""
            parts += [f"{name}={text!r}{more}"] if data else []
        return f"<{type(self).__name__} {self.id} {' '.join(parts)}>"

    def check(self) -> None:
        """Raises CommandFailed unless `ok`."""
        if not self.ok:
            raise CommandFailed(self)

    @classmethod
    def of(
        cls, answer: Mapping[str, Any], stdout: bytes, stderr: bytes, read_files: Sequence[str] = ()
    ) -> Result:
        """Make a result from the API's answer and all output. read_files: the files' paths."""
        known = {one.name for one in fields(Usage)}
        files = [ReadFile.of(file) for file in answer.get("files", ())]
        usage = {name: value for name, value in answer["usage"].items() if name in known}
        return cls(
            id=answer["id"],
            sandbox_id=answer["sandbox_id"],
            status=answer["status"],
            exit_code=answer["exit_code"],
            signal=answer["signal"],
            error_code=answer["error_code"],
            limit_owner=answer["limit_owner"],
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            usage=Usage(**usage),
            raw=answer,
            files=dict(zip(read_files, files, strict=True)),
        )


class CommandFailed(SandboxdError):
    """Raised by `check` when the command did not end with 0; `result` is the finished execution."""

    code: ClassVar[str] = "COMMAND_FAILED"

    def __init__(self, result: Result) -> None:
        how = result.status if result.exit_code is None else f"exit code {result.exit_code}"
        if result.error_code:
            how = f"{how}, {result.error_code}"
        super().__init__(f"command failed: {how}")
        self.result = result


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a directory in a sandbox; `path` is relative to the home.

    type: file, directory, symlink, fifo, socket or device. mode: permission bits. target: a
    symlink's target. A path that is not UTF-8 has surrogates as by os.fsdecode, and may be passed
    back.
    """

    path: str
    type: str
    size_bytes: int
    mode: int
    modified_at: datetime
    target: str | None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def kept(self) -> tuple[int, float]:
        """Permission bits and mtime in seconds since 1970, as kept by a copy."""
        return self.mode & 0o777, self.modified_at.timestamp()

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Entry:
        """Make an entry from the API's answer."""
        return cls(
            path=native_path(answer),
            type=answer["type"],
            size_bytes=answer["size_bytes"],
            mode=int(answer["mode"], 8),
            modified_at=datetime.fromisoformat(answer["modified_at"]),
            target=answer["target"],
        )


class Decoder:
    """Decoder of both output streams to text; a split character waits for the missing bytes."""

    def __init__(self) -> None:
        new = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": new("replace"), "stderr": new("replace")}

    def output(self, stream: str, data: bytes) -> Output:
        """Decode the next piece of a stream."""
        return Output(stream, self._decoders[stream].decode(data), data)
