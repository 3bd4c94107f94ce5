# SPDX-License-Identifier: Apache-2.0
"""Settings that are lists, and those that are none."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandboxd.daemon import config
from sandboxd.daemon.config import Config, load
from sandboxd.errors import ConfigError


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


@pytest.mark.parametrize(("value", "expected"), [("unlimited", None), ("64G", 64 << 30)])
def test_a_limit_that_may_be_none(value: str, expected: int | None) -> None:
    found = Config.model_validate({"address_space_limit_bytes": value})
    assert found.address_space_limit_bytes == expected
    assert Config().address_space_limit_bytes is None


def test_a_setting_that_is_none_is_named_with_the_nearest_that_is(tmp_path: Path) -> None:
    file = tmp_path / "sandboxd.toml"
    file.write_text('max_sandboxes_per_user = 3\nqqq = 1\ncgroup_mode = "maybe"\n')
    with pytest.raises(ConfigError) as caught:
        load(str(file), {})
    assert str(caught.value) == (
        "cannot accept the settings: cgroup_mode: Input should be 'auto', 'required' or 'off'; "
        "max_sandboxes_per_user: there is no such setting (perhaps max_sandboxes_per_caller); "
        "qqq: there is no such setting"
    )


@pytest.mark.parametrize(
    ("variable", "argv", "source"),
    [("", [], "--runtime-dir"), ("/s", [], "SANDBOXD_SOCKET"), ("/s", ["--socket=/t"], "--socket")],
)
def test_who_named_the_socket(
    variable: str, argv: list[str], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOXD_SOCKET", variable)
    given = config.argument_parser().parse_args(argv)
    assert config.socket_named_by(given.socket) == source


def test_what_looks_like_a_setting_in_the_environment_is_named() -> None:
    environment = {
        "SANDBOX_MEMORY_LIMT_BYTES": "64M",
        "SANDBOX_PIDS_LIMIT": "5",
        "SANDBOXES": "x",
    }
    assert config.unknown(environment) == [
        "SANDBOX_MEMORY_LIMT_BYTES: there is no such setting (perhaps SANDBOX_MEMORY_LIMIT_BYTES)"
    ]
