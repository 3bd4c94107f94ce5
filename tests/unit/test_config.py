# SPDX-License-Identifier: Apache-2.0
"""Settings that are lists."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from pydantic import ValidationError

from sandboxd.config import Config


@pytest.mark.parametrize(
    "value",
    ["10.0.0.0/8, fd00:ec2::254", ["10.0.0.0/8", "fd00:ec2::254"], ("10.0.0.0/8,fd00:ec2::254")],
)
def test_denied_addresses(value: object) -> None:
    expected = (ip_network("10.0.0.0/8"), ip_network("fd00:ec2::254/128"))
    assert Config.model_validate({"denied_addresses": value}).denied_addresses == expected


@pytest.mark.parametrize("value", ["10.0.0.1/8", "localhost", "10.0.0.0/33", 5, {"a": 1}])
def test_addresses_that_are_none_are_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="denied_addresses"):
        Config.model_validate({"denied_addresses": value})
