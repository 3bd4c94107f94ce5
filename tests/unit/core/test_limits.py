# SPDX-License-Identifier: Apache-2.0
"""What has to be written beside the table of limits is held to it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sandboxd.core.limits import BY_NAME, LIMITS, SANDBOX_LIMITS, SCOPE_LIMITS, Limit, Unit
from sandboxd.core.model import LimitChanges, Limits
from sandboxd.daemon.config import Config
from sandboxd.protocol.supervision import Caps

NAMES = [limit.name for limit in LIMITS]
# Of Caps: what the shim holds elsewhere, and what backs memory up.
OTHER_CAPS = {"cpu_seconds", "data_bytes"}


def names(model: type) -> list[str]:
    return [field.name for field in fields(model)]


def test_values_have_a_field_for_each_row() -> None:
    assert names(Limits) == names(LimitChanges) == NAMES
    assert list(BY_NAME) == NAMES


def test_supervisors_are_told_what_they_can_hold() -> None:
    assert [limit.name for limit in LIMITS if limit.supervised] == [
        name for name in names(Caps) if name not in OTHER_CAPS
    ]


@pytest.mark.parametrize("limit", LIMITS, ids=NAMES)
def test_each_has_its_settings(limit: Limit) -> None:
    assert f"max_{limit.name}" in Config.model_fields
    assert limit.setting is None or limit.setting in Config.model_fields


@pytest.mark.parametrize("limit", LIMITS, ids=NAMES)
def test_each_row_is_whole(limit: Limit) -> None:
    assert (limit.unit is Unit.COUNT) is (limit.most is not None)
    assert (limit.name in SCOPE_LIMITS) is (limit.file is not None)
    assert (limit.file is None) is (limit.unit_property is None)
    assert limit.option.startswith("--")
    assert limit.text


def test_a_sandbox_carries_what_its_executions_cannot_pass() -> None:
    assert SANDBOX_LIMITS == (
        "memory_bytes", "cpus", "cpu_weight", "pids",
        "io_read_bytes_per_second", "io_write_bytes_per_second", "disk_bytes",
    )  # fmt: skip
    assert SCOPE_LIMITS == SANDBOX_LIMITS[:-1]
