# SPDX-License-Identifier: Apache-2.0
"""Who a command is, and where its home is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sandboxd.model import Isolation
from sandboxd.workspace import identity
from tests.unit.values import a_sandbox

HOST = a_sandbox()
OWN = replace(HOST, isolation=Isolation.STANDARD)


def test_in_the_hosts_root_its_accounts_stay_known() -> None:
    assert identity.names(HOST) == ("passwd", "group")
    passwd = identity.text(HOST, "passwd", "/state/home")
    assert passwd.startswith(f"sandbox:x:{HOST.uid}:{HOST.uid}:sandbox:/state/home:/bin/sh\n")
    assert passwd.endswith(Path("/etc/passwd").read_text())


def test_a_root_of_its_own_knows_none_of_them() -> None:
    assert identity.names(OWN) == ("passwd", "group", "hosts", "nsswitch.conf")
    passwd = identity.text(OWN, "passwd", "/state/home").splitlines()
    assert [line.split(":")[0] for line in passwd] == ["sandbox", "root", "nobody"]
    assert passwd[0].split(":")[5] == "/home/sandbox"
    group = identity.text(OWN, "group", "/state/home").splitlines()
    assert [line.split(":")[2] for line in group] == [str(OWN.uid), "0", "65534"]
    assert "localhost" in identity.text(OWN, "hosts", "/state/home")
    assert "hosts: files dns" in identity.text(OWN, "nsswitch.conf", "/state/home")
