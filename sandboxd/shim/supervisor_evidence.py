# SPDX-License-Identifier: Apache-2.0
"""The shim's question to a supervisor: the reason of a kill, and the usage measured."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sandboxd.osutil.objects import read_json
from sandboxd.osutil.seqpacket import ask
from sandboxd.protocol import evidence
from sandboxd.protocol.specification import Supervision

_ANSWER_SECONDS = 0.25
_MAX_PACKET_BYTES = 4096


def evidence_of(supervision: Supervision | None) -> dict[str, Any]:
    """Return `verdict` and `supervised`, None for a missing file; {} without supervisor."""
    if supervision is None:
        return {}
    path, directory = supervision.socket_path, supervision.evidence_directory
    verdict = None
    # Without an answer from an absent or busy supervisor the files tell as much as was written.
    with suppress(OSError, ValueError):
        order = {"op": "ended", "sandbox": supervision.sandbox,
                 "execution": supervision.execution}  # fmt: skip
        answer = ask(path, order, timeout_seconds=_ANSWER_SECONDS, max_bytes=_MAX_PACKET_BYTES)
        verdict = answer.get("verdict")
    found: dict[str, Any] = {"verdict": verdict, "supervised": None}
    for key, name in (("verdict", evidence.VERDICT_FILE), ("supervised", evidence.USAGE_FILE)):
        with suppress(OSError, ValueError):
            found[key] = read_json(directory, name) or found[key]
    return found
