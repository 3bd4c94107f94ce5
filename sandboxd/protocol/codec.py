# SPDX-License-Identifier: Apache-2.0
"""The one encoder and decoder of messages: frozen slotted dataclasses to JSON and back.

A field is a str, int, float, bool, a StrEnum, a message, `X | None`, `tuple[X, ...]`, `tuple[X, Y]`
or `Mapping[str, X]`. Decoding is strict: a key of no field, a field without a key, and a value of
another type are errors. Two things let older writers be read: a field with a default may be absent,
and a class's FORMER_NAMES (former name -> name) are read as well as the names.

Modules of messages have no `from __future__ import annotations`: the codec reads the fields' types,
and evaluating strings would take a fifth of the time that a module of messages takes to load.
"""

from __future__ import annotations

import json
import math
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

from sandboxd.osutil import objects
from sandboxd.osutil.files import write_whole

_Message = TypeVar("_Message")
# From a value of json.loads, and the path of its key, to the field's value.
_Load = Callable[[Any, str], Any]

_PLAIN = frozenset((str, int, float, bool, type(None)))


class Malformed(ValueError):
    """Raised for what is not a message; names the key and what is wrong with it."""


class Codec(Generic[_Message]):
    """Encodes and decodes one class of messages."""

    def __init__(self, kind: type[_Message]) -> None:
        self._name = kind.__name__
        self._load = _message_loader(kind)

    def encode(self, message: _Message) -> bytes:
        """Return a message as compact JSON."""
        return encode(message)

    def decode(self, data: bytes) -> _Message:
        """Raises Malformed."""
        return self.from_object(_object(data))

    def write(self, directory: str, name: str, message: _Message) -> None:
        """Write a message into a file, whole or not at all. Raises OSError."""
        write_whole(os.path.join(directory, name), self.encode(message))

    def read(self, directory: str, name: str) -> _Message | None:
        """Return the message in a file; None without the file. Raises OSError and Malformed."""
        try:
            with open(os.path.join(directory, name), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        return self.decode(data)

    def from_object(self, value: Mapping[str, Any]) -> _Message:
        """Return the message in a decoded JSON object. Raises Malformed."""
        message: _Message = self._load(value, self._name)
        return message


class Kinds(Generic[_Message]):
    """Encodes and decodes several classes of messages, told apart by the value of one key."""

    def __init__(self, key: str, kinds: Mapping[str, type[_Message]]) -> None:
        self._key = key
        self._names = {kind: name for name, kind in kinds.items()}
        self._loaders = {name: _message_loader(kind) for name, kind in kinds.items()}

    def encode(self, message: _Message) -> bytes:
        """Return a message as compact JSON."""
        return objects.encode({self._key: self._names[type(message)], **to_object(message)})

    def decode(self, data: bytes) -> _Message:
        """Raises Malformed."""
        value = _object(data)
        name = value.pop(self._key, None)
        load = self._loaders.get(name) if isinstance(name, str) else None
        if load is None:
            raise Malformed(f"cannot read a message: unknown {self._key} {str(name)[:100]!r}")
        message: _Message = load(value, str(name))
        return message


def encode(message: object) -> bytes:
    """Return a message as compact JSON."""
    return objects.encode(to_object(message))


def to_object(message: object) -> dict[str, Any]:
    """Return a message as an object for json.dumps."""
    names: tuple[str, ...] = message.__slots__  # type: ignore[attr-defined]
    return {name: _plain(getattr(message, name)) for name in names}


def _plain(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return to_object(value) if is_dataclass(value) else value


def _object(data: bytes) -> dict[str, Any]:
    try:
        return objects.decode(data)
    except ValueError as exc:
        raise Malformed(f"cannot read a message: {exc}") from exc


def _message_loader(kind: type[Any]) -> _Load:
    known = {one.name: _loader(one.type) for one in fields(kind)}
    required = {
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    }
    former: Mapping[str, str] = getattr(kind, "FORMER_NAMES", {})

    def load(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        found = {}
        for key, one in value.items():
            name = former.get(key, key)
            if name not in known:
                raise Malformed(f"cannot read {path}: unknown key {key[:100]!r}")
            if name in found:
                raise Malformed(f"cannot read {path}: {name} under two names")
            found[name] = known[name](one, f"{path}.{name}")
        if not required <= found.keys():
            missing = ", ".join(sorted(required - found.keys()))
            raise Malformed(f"cannot read {path}: no {missing}")
        return kind(**found)

    return load


def _loader(kind: Any) -> _Load:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        (inner,) = (one for one in arguments if one is not type(None))
        load = _loader(inner)
        return lambda value, path: None if value is None else load(value, path)
    if origin is tuple:
        return _tuple_loader(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_loader(_loader(arguments[1]))
    if kind is float:
        return _load_float
    if kind in _PLAIN:
        return _exact_loader(kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _choice_loader(kind)
    if is_dataclass(kind):
        return _message_loader(kind)  # type: ignore[arg-type]
    raise TypeError(f"no message has a field of type {kind!r}")


def _exact_loader(kind: type) -> _Load:
    def load(value: Any, path: str) -> Any:
        # bool is a subclass of int, and no number.
        if type(value) is not kind:
            raise _wrong(path, kind.__name__, value)
        return value

    return load


def _load_float(value: Any, path: str) -> float:
    if type(value) not in (int, float):
        raise _wrong(path, "float", value)
    try:
        number = float(value)
    except OverflowError as exc:
        raise _wrong(path, "float", value) from exc
    if not math.isfinite(number):
        raise Malformed(f"cannot read {path}: {value} is not finite")
    return number


def _choice_loader(kind: type[StrEnum]) -> _Load:
    choices = {one.value: one for one in kind}

    def load(value: Any, path: str) -> StrEnum:
        if type(value) is not str or value not in choices:
            raise _wrong(path, f"one of {', '.join(choices)}", value)
        return choices[value]

    return load


def _tuple_loader(arguments: tuple[Any, ...]) -> _Load:
    any_number = arguments[-1] is Ellipsis
    loaders = [_loader(one) for one in arguments if one is not Ellipsis]

    def load(value: Any, path: str) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _wrong(path, "an array", value)
        inside = f"{path}[]"
        if any_number:
            return tuple([loaders[0](one, inside) for one in value])
        if len(value) != len(loaders):
            raise Malformed(f"cannot read {path}: {len(value)} values, not {len(loaders)}")
        return tuple([one(item, inside) for one, item in zip(loaders, value, strict=True)])

    return load


def _mapping_loader(inner: _Load) -> _Load:
    def load(value: Any, path: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise _wrong(path, "an object", value)
        inside = f"{path}[]"
        return {key: inner(one, inside) for key, one in value.items()}

    return load


def _wrong(path: str, wanted: str, value: object) -> Malformed:
    return Malformed(f"cannot read {path}: {wanted} wanted, not {json.dumps(value)[:100]}")
