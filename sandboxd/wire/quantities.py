# SPDX-License-Identifier: Apache-2.0
"""Field types of requests: quantities, names and text, with bounds and schema.

JSON's true is Python's 1, so every number here refuses bool by name.
"""

from __future__ import annotations

import re
import signal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema

from sandboxd.core.names import NAME_PATTERN, is_name
from sandboxd.core.quantity import parse_bytes, parse_cpus, parse_seconds

MAX_WAIT_SECONDS = 3600.0
MAX_GRACE_SECONDS = 300.0
_LAST_SIGNAL = 64


def text(value: str) -> str:
    """Return `value`. Raises ValueError if a C string in UTF-8 cannot carry `value`."""
    if "\0" in value:
        raise ValueError("must not have a NUL byte")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode, without lone surrogates") from None
    return value


def _bytes(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('must be a whole number of bytes or a string such as "512M"')
    return parse_bytes(value)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('must be a number of seconds or a string such as "90s"')
    return parse_seconds(value)


def _cpus(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('must be a number of cores or a string such as "150%"')
    if isinstance(value, str) and not value.rstrip().endswith("%"):
        raise ValueError('must have a "%" if it is a string, such as "150%"')
    return parse_cpus(value)


def _bounded_seconds(value: object, maximum: float) -> float:
    """Return seconds from 0 (at once) to `maximum`. Raises ValueError."""
    is_zero = value in ("0", "0s") or (value == 0 and not isinstance(value, bool))
    seconds = 0.0 if is_zero else _seconds(value)
    if seconds > maximum:
        raise ValueError(f"must be at most {maximum:g} seconds")
    return seconds


def _wait(value: object) -> float:
    return _bounded_seconds(value, MAX_WAIT_SECONDS)


def _wait_or_flag(value: object) -> bool | float:
    return value if isinstance(value, bool) else _wait(value)


def _grace(value: object) -> float:
    return _bounded_seconds(value, MAX_GRACE_SECONDS)


def _count(maximum: int) -> BeforeValidator:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("must be a whole number")
        if not 1 <= value <= maximum:
            raise ValueError(f"must be at least 1 and at most {maximum}")
        return value

    return BeforeValidator(check)


def count(maximum: int) -> Any:
    """Return the type of a whole number from 1 to `maximum`."""
    schema = WithJsonSchema({"type": "integer", "minimum": 1, "maximum": maximum})
    return Annotated[int, _count(maximum), schema]


def _name(value: str) -> str:
    if not is_name(value):
        raise ValueError(
            "must start with a-z, go on with at most 62 of a-z, 0-9 and -, and not look like an id"
        )
    return value


IMAGE_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


def _image_name(value: str) -> str:
    if not re.fullmatch(IMAGE_NAME_PATTERN, value, re.ASCII):
        raise ValueError("must be a name: letters, digits and . _ -, at most 64, no leading dot")
    return value


_OCTAL = re.compile(r"0?[0-7]{3}", re.ASCII)


def _mode(value: object) -> int:
    if not isinstance(value, str) or not _OCTAL.fullmatch(value):
        raise ValueError("must be three octal digits, such as 0644")
    return int(value, 8)


def _signal(value: object) -> int:
    if isinstance(value, str):
        name = value if value.startswith("SIG") else f"SIG{value}"
        if name not in signal.Signals.__members__:
            raise ValueError('must be a signal such as 15 or "SIGTERM"')
        return int(signal.Signals[name])
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LAST_SIGNAL:
        raise ValueError(f'must be 1 to {_LAST_SIGNAL} or a name such as "SIGTERM"')
    return value


def _schema(first: dict[str, object], text_example: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [first, {"type": "string", "examples": [text_example]}]})


_POSITIVE: dict[str, object] = {"type": "number", "exclusiveMinimum": 0}
_FROM_ZERO: dict[str, object] = {"type": "number", "minimum": 0}

Bytes = Annotated[int, BeforeValidator(_bytes), _schema({"type": "integer", "minimum": 1}, "512M")]
Seconds = Annotated[float, BeforeValidator(_seconds), _schema(_POSITIVE, "90s")]
WaitSeconds = Annotated[
    float, BeforeValidator(_wait), _schema({**_FROM_ZERO, "maximum": MAX_WAIT_SECONDS}, "90s")
]
WaitOrFlag = Annotated[
    bool | float,
    BeforeValidator(_wait_or_flag),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {**_FROM_ZERO, "maximum": MAX_WAIT_SECONDS},
                {"type": "string", "examples": ["90s"]},
            ]
        }
    ),
]
GraceSeconds = Annotated[
    float, BeforeValidator(_grace), _schema({**_FROM_ZERO, "maximum": MAX_GRACE_SECONDS}, "5s")
]
Cpus = Annotated[float, BeforeValidator(_cpus), _schema({**_POSITIVE, "minimum": 0.01}, "150%")]
MAX_TERMINAL_SIDE = 65535
TerminalSide = Annotated[
    int,
    _count(MAX_TERMINAL_SIDE),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_TERMINAL_SIDE}),
]
Signal = Annotated[
    int,
    BeforeValidator(_signal),
    _schema({"type": "integer", "minimum": 1, "maximum": _LAST_SIGNAL}, "SIGTERM"),
]
Text = Annotated[str, Strict(), AfterValidator(text)]
Name = Annotated[
    str,
    Strict(),
    AfterValidator(_name),
    WithJsonSchema({"type": "string", "pattern": NAME_PATTERN}),
]
ImageName = Annotated[
    str,
    Strict(),
    AfterValidator(_image_name),
    WithJsonSchema({"type": "string", "pattern": f"^{IMAGE_NAME_PATTERN}$"}),
]
Flag = Annotated[bool, Strict()]
Mode = Annotated[int, BeforeValidator(_mode), Field(json_schema_extra={"examples": ["0644"]})]
