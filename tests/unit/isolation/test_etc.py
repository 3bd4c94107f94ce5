# SPDX-License-Identifier: Apache-2.0
"""What of the host's /etc a sandbox does not see, and what an admin may change about that."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.isolation import etc
from sandboxd.isolation.layers import Mask


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(etc, "TOP", str(tmp_path))
    for name in ("php/cli", "R", "ssh/ssh_config.d", "ssl/private", "apt", ".git", ".java"):
        (tmp_path / name).mkdir(parents=True)
    names = "machine-id passwd passwd- hosts pip.conf fpc.cfg ssh/ssh_config php.ini.dpkg-old"
    for name in (*names.split(), "sudoers", "crontab", "matplotlibrc"):
        (tmp_path / name).write_text(name)
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/Etc/UTC")
    return tmp_path


def seen(mask: Mask) -> set[str]:
    readable, links = etc.entries(mask)
    return {path.removeprefix(f"{etc.TOP}/") for _, path in (*readable, *links)}


PROGRAMS = {".java", "R", "fpc.cfg", "localtime", "matplotlibrc", "php", "ssl"}


@pytest.mark.usefixtures("top")
def test_programs_configuration_is_seen_and_no_name_or_secret() -> None:
    mask = etc.mask([], [], ["passwd", "hosts"])
    assert seen(mask) == PROGRAMS
    assert mask.own == ("hosts", "passwd")
    assert not set(mask.own) & set(mask.hidden)
    assert (mask.kept, "/usr/share/zoneinfo/Etc/UTC") == ((), etc.entries(mask)[1][0][0])


@pytest.mark.usefixtures("top")
def test_a_name_is_hidden_before_it_is_there() -> None:
    hidden = etc.mask(["mine", "their*"], [], []).hidden
    assert {"fstab", "krb5.keytab", "mine"} & set(hidden) == {"fstab", "mine"}
    assert "their*" not in hidden


@pytest.mark.usefixtures("top")
def test_an_admin_hides_more() -> None:
    assert seen(etc.mask(["R", "f*"], [], ["passwd"])) == PROGRAMS - {"R", "fpc.cfg"}


def test_an_admin_shows_more(top: Path) -> None:
    shown = [f"{top}/pip.conf", f"{top}/ssh/ssh_config", f"{top}/apt/absent", "/opt"]
    mask = etc.mask([], shown, ["passwd"])
    assert mask.kept == ("ssh/ssh_config",)
    assert "ssh" in mask.hidden
    assert seen(mask) == PROGRAMS | {"pip.conf", "ssh/ssh_config"}
    everything = seen(etc.mask([], [str(top)], ["passwd", "hosts"]))
    assert everything == {path.name for path in top.iterdir()} - {"passwd", "hosts"}
