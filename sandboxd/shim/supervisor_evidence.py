# SPDX-License-Identifier: Apache-2.0
"""The shim's question to a supervisor: the reason of a kill, and the usage measured."""

from __future__ import annotations

from contextlib import suppress

from sandboxd.osutil.seqpacket import ask
from sandboxd.protocol import dialogue, evidence
from sandboxd.protocol.dialogue import Conclude
from sandboxd.protocol.specification import Supervision

_ANSWER_SECONDS = 0.25
_MAX_PACKET_BYTES = 4096


def evidence_of(
    supervision: Supervision | None,
) -> tuple[evidence.Verdict | None, evidence.MeasuredUsage | None]:
    """Return what a supervisor wrote, None for a missing file; (None, None) without supervisor."""
    if supervision is None:
        return None, None
    directory = supervision.evidence_directory
    verdict, usage = _ask(supervision), None
    with suppress(OSError, ValueError):
        verdict = evidence.VERDICT.read(directory, evidence.VERDICT_FILE) or verdict
    with suppress(OSError, ValueError):
        usage = evidence.USAGE.read(directory, evidence.USAGE_FILE)
    return verdict, usage


def _ask(supervision: Supervision) -> evidence.Verdict | None:
    """Have the supervisor write the usage; return the verdict, which a full disk may keep back."""
    order = dialogue.ORDERS.encode(Conclude(supervision.sandbox, supervision.execution))
    # Without an answer from an absent or busy supervisor the files tell as much as was written.
    with suppress(OSError, ValueError):
        answer = ask(
            supervision.socket_path, order,
            timeout_seconds=_ANSWER_SECONDS, max_bytes=_MAX_PACKET_BYTES,
        )  # fmt: skip
        return dialogue.CONCLUDED.decode(answer).verdict
    return None
