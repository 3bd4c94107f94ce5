# SPDX-License-Identifier: Apache-2.0
"""Field types of a command's argv, environment, working directory, input and metadata.

The kernel's bounds (execve(2)): an argument or environment entry, with the final NUL, is at most 32
pages; all strings, with a pointer for each, at most a quarter of the 8 MiB stack. Larger requests
are refused here, since E2BIG of execve names no argument.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Strict, WithJsonSchema

from sandboxd.core.entries import clean_path
from sandboxd.errors import InvalidRequest
from sandboxd.wire.quantities import text

MAX_STRING_BYTES = 128 << 10
# Less than the kernel's 2 MiB by the base environment, the path and the auxiliary vector.
MAX_EXEC_BYTES = (2 << 20) - (32 << 10)
MAX_ARGUMENTS = 65_536
MAX_ENV_ENTRIES = 4_096
MAX_PATH_BYTES = 4_095
MAX_METADATA_ENTRIES = 64
MAX_METADATA_VALUE_BYTES = 4_096
_METADATA_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}", re.ASCII)
_POINTER_BYTES = 8


def exec_bytes(argv: Iterable[str], env: Mapping[str, str]) -> int:
    """Return the bytes that argv and env take in a new program's stack."""
    entries = [*argv, *(f"{key}={value}" for key, value in env.items())]
    return len("".join(entries).encode()) + len(entries) * (1 + _POINTER_BYTES)


def check_exec_bytes(argv: Iterable[str], env: Mapping[str, str]) -> None:
    """Raise ValueError when argv and env together exceed MAX_EXEC_BYTES."""
    total = exec_bytes(argv, env)
    if total > MAX_EXEC_BYTES:
        raise ValueError(
            f"arguments and environment together take {total} bytes, and at most "
            f"{MAX_EXEC_BYTES} can be passed: use stdin or a file"
        )


def _one_string(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string")
    try:
        text(value)
    except ValueError as exc:
        raise ValueError(f"{what} {exc}") from None
    if len(value) >= MAX_STRING_BYTES or len(value.encode()) >= MAX_STRING_BYTES:
        raise ValueError(
            f"{what} takes {len(value.encode())} bytes, and one string must be shorter than "
            f"{MAX_STRING_BYTES} bytes (128 KiB): use stdin or a file"
        )
    return value


def _are_plain(values: list[object]) -> bool:
    """Return whether all values are short strings that a C string can carry, checked at once.

    Short: a tenth of MAX_STRING_BYTES, so that name and value of an entry fit together in UTF-8.
    """
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values) or max(map(len, texts), default=0) * 10 >= MAX_STRING_BYTES:
        return False
    try:
        return b"\0" not in "".join(texts).encode()
    except UnicodeEncodeError:
        return False


def _argv(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of at least one string")
    if len(value) > MAX_ARGUMENTS:
        raise ValueError(f"must be at most {MAX_ARGUMENTS} arguments")
    if _are_plain(value):
        argv = tuple(value)
    else:
        argv = tuple(_one_string(entry, f"argument {index}") for index, entry in enumerate(value))
    if not argv[0]:
        raise ValueError("argument 0 must name a program")
    return argv


def _command(value: object) -> str:
    command = _one_string(value, "the command")
    if not command.strip():
        raise ValueError("the command must not be empty")
    return command


def _env(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("must be an object of strings")
    if len(value) > MAX_ENV_ENTRIES:
        raise ValueError(f"must have at most {MAX_ENV_ENTRIES} entries")
    if _are_plain([*value, *value.values()]) and not any(not key or "=" in key for key in value):
        return value
    for key, entry in value.items():
        shown = f"{key[:64]!r}"
        if not key or "=" in key:
            raise ValueError(f"the name {shown} must not be empty or have a '='")
        if not isinstance(entry, str):
            raise ValueError(f"the value of {shown} must be a string")
        _one_string(f"{key}={entry}", f"the entry {shown}")
    return value


def _cwd(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    if len(text(value).encode()) > MAX_PATH_BYTES:
        raise ValueError(f"must be at most {MAX_PATH_BYTES} bytes")
    return value


def _metadata(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("must be an object of strings")
    if len(value) > MAX_METADATA_ENTRIES:
        raise ValueError(f"must have at most {MAX_METADATA_ENTRIES} entries")
    for key, entry in value.items():
        shown = f"{key[:64]!r}"
        if _METADATA_KEY.fullmatch(key) is None:
            raise ValueError(f"the key {shown} must be 1 to 128 of A-Z, a-z, 0-9 and ._/-")
        if not isinstance(entry, str):
            raise ValueError(f"the value of {shown} must be a string")
        if len(text(entry).encode()) > MAX_METADATA_VALUE_BYTES:
            raise ValueError(f"the value of {shown} takes over {MAX_METADATA_VALUE_BYTES} bytes")
    return value


def _stdin(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode: pass other bytes as stdin_base64") from None


def _stdin_base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64 (RFC 4648, with padding)") from None


def _file_path(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    try:
        path = clean_path(text(value).encode(), "path")
    except InvalidRequest as exc:
        raise ValueError(exc.details["fields"][0]["reason"]) from None
    if not path:
        raise ValueError("must name a file")
    return path


_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}

Argv = Annotated[
    tuple[str, ...],
    BeforeValidator(_argv),
    WithJsonSchema(
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_ARGUMENTS}
    ),
]
ShellCommand = Annotated[
    str, BeforeValidator(_command), WithJsonSchema({"type": "string", "minLength": 1})
]
Env = Annotated[
    dict[str, str],
    BeforeValidator(_env),
    WithJsonSchema({**_STRINGS, "maxProperties": MAX_ENV_ENTRIES}),
]
Metadata = Annotated[
    dict[str, str],
    BeforeValidator(_metadata),
    WithJsonSchema({**_STRINGS, "maxProperties": MAX_METADATA_ENTRIES}),
]
WorkingDirectory = Annotated[str, Strict(), AfterValidator(_cwd)]
Path = WorkingDirectory
Stdin = Annotated[bytes, BeforeValidator(_stdin), WithJsonSchema({"type": "string"})]
StdinBase64 = Annotated[
    bytes,
    BeforeValidator(_stdin_base64),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
FilePath = Annotated[bytes, BeforeValidator(_file_path), WithJsonSchema({"type": "string"})]
