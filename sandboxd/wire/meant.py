# SPDX-License-Identifier: Apache-2.0
"""Suggests a field for an unknown field's name. Pure; the caller bounds the number of fields."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel

_UNIT = re.compile(r"_(bytes|seconds|sec|secs|ms|kb|mb|gb|mib|gib|limit|per_second)$")
# Names that other programs give to the same fields.
_ELSEWHERE = {
    "cmd": "command", "args": "argv", "arguments": "argv", "environment": "env", "mem": "memory",
    "cpu": "cpus", "processes": "pids", "working_dir": "cwd", "workdir": "cwd", "image": "rootfs",
    "labels": "metadata", "volumes": "binds", "mounts": "binds", "input": "stdin", "ttl": "timeout",
}  # fmt: skip
_MOST_CHARACTERS = 40
_NEAR_ENOUGH = 0.75


def meant(model: type[BaseModel], path: Sequence[Any]) -> str | None:
    """Return a field of `model`, or of a nested model, for the unknown field at `path`, or None."""
    *above, wrong = map(str, path)
    for name in above:
        inner = _model_of(model, name)
        if inner is None:
            return None
        model = inner
    if len(wrong) > _MOST_CHARACTERS:
        return None
    return _nearest(model, wrong) or _one_deeper(model, wrong)


def _one_deeper(model: type[BaseModel], wrong: str) -> str | None:
    for name in model.model_fields:
        inner = _model_of(model, name)
        found = None if inner is None else _nearest(inner, wrong)
        if found is not None:
            return f"{name}.{found}"
    return None


def _nearest(model: type[BaseModel], wrong: str) -> str | None:
    stems = {_stem(name): name for name in reversed(model.model_fields)}
    asked = wrong.lower().replace("-", "_")
    asked = _stem(_ELSEWHERE.get(_stem(asked), asked))
    near = difflib.get_close_matches(asked, stems, n=1, cutoff=_NEAR_ENOUGH)
    return stems[near[0]] if near else None


def _stem(name: str) -> str:
    return _UNIT.sub("", name)


def _model_of(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    field = model.model_fields.get(name)
    if field is None:
        return None
    kinds = (field.annotation, *get_args(field.annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
