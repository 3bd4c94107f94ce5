# SPDX-License-Identifier: Apache-2.0
"""Every message between processes comes back as it was sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxd.protocol import (
    building,
    dialogue,
    evidence,
    link,
    records,
    spawning,
    specification,
    supervision,
)  # fmt: skip
from sandboxd.protocol.codec import Codec, Kinds

st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))

CODECS: dict[str, tuple[Any, Codec[Any] | Kinds[Any]]] = {
    "link.ORDERS": (link.Order, link.ORDERS),
    "link.EVENTS": (link.Event, link.EVENTS),
    "spawning.REQUESTS": (spawning.Request, spawning.REQUESTS),
    "spawning.ANSWERS": (spawning.Answer, spawning.ANSWERS),
    "building.ORDERS": (building.Order, building.ORDERS),
    "building.ANSWERS": (building.Answer, building.ANSWERS),
    "records.START": (records.StartRecord, records.START),
    "records.END": (records.EndRecord, records.END),
    "dialogue.ORDERS": (dialogue.Order, dialogue.ORDERS),
    "dialogue.LOADED": (dialogue.Loaded, dialogue.LOADED),
    "dialogue.GREETING": (dialogue.Greeting, dialogue.GREETING),
    "dialogue.MEMORY_NOW": (dialogue.MemoryNow, dialogue.MEMORY_NOW),
    "dialogue.USAGE_NOW": (dialogue.UsageNow, dialogue.USAGE_NOW),
    "dialogue.EXECUTIONS_NOW": (dialogue.ExecutionsNow, dialogue.EXECUTIONS_NOW),
    "dialogue.CONCLUDED": (dialogue.Concluded, dialogue.CONCLUDED),
    "supervision.STATE": (supervision.State, supervision.STATE),
    "evidence.VERDICT": (evidence.Verdict, evidence.VERDICT),
    "evidence.USAGE": (evidence.MeasuredUsage, evidence.USAGE),
    "specification": (specification.ShimSpec, specification.SPECIFICATION),
}


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_sent_arrives(name: str, data: st.DataObject) -> None:
    kinds, codec = CODECS[name]
    message = data.draw(st.from_type(kinds))
    assert codec.decode(codec.encode(message)) == message
