# SPDX-License-Identifier: Apache-2.0
"""Who a command is, and where its home is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sandboxd.core.model import Isolation, Network
from sandboxd.workspace import identity
from tests.unit.values import a_sandbox

HOST = a_sandbox()
OWN = replace(HOST, isolation=Isolation.STANDARD, network=Network.LOOPBACK)


def test_in_the_hosts_root_its_accounts_stay_known() -> None:
    assert identity.names(HOST) == ("passwd", "group")
    passwd = identity.text(HOST, "passwd", "/state/home")
    assert passwd.startswith(f"sandbox:x:{HOST.uid}:{HOST.uid}:sandbox:/state/home:/bin/sh\n")
    assert passwd.endswith(Path("/etc/passwd").read_text())


def test_a_root_of_its_own_knows_none_of_them() -> None:
    assert identity.names(OWN) == ("passwd", "group", "hosts", "nsswitch.conf")
    passwd = identity.text(OWN, "passwd", "/state/home").splitlines()
    ids = {name: (int(uid), home) for name, _, uid, _, _, home, _ in (x.split(":") for x in passwd)}
    assert passwd[0].split(":")[0] == "sandbox"
    assert len(ids) == len(passwd)
    assert (ids["root"], ids["nobody"], ids["www-data"][0]) == (
        (0, "/root"), (65534, "/nonexistent"), 33,
    )  # fmt: skip
    assert all(uid < 100 for name, (uid, _) in ids.items() if name not in ("sandbox", "nobody"))
    assert passwd[0].split(":")[5] == "/home/sandbox"
    group = identity.text(OWN, "group", "/state/home").splitlines()
    gids = {line.split(":")[0]: int(line.split(":")[2]) for line in group}
    assert len(gids) == len(group)
    assert gids["sandbox"] == OWN.uid
    assert (gids["root"], gids["sys"], gids["tty"], gids["nogroup"]) == (0, 3, 5, 65534)
    assert {int(line.split(":")[3]) for line in passwd} <= set(gids.values())
    assert "localhost" in identity.text(OWN, "hosts", "/state/home")
    assert "resolv.conf" not in identity.names(OWN)
    assert "hosts: files dns" in identity.text(OWN, "nsswitch.conf", "/state/home")


def test_with_the_hosts_network_come_its_names() -> None:
    networked = replace(OWN, network=Network.HOST)
    assert identity.names(networked) == (*identity.names(OWN), "resolv.conf")
    for name in identity.OF_HOST_NETWORK:
        host = Path("/etc", name)
        if host.exists():
            assert identity.text(networked, name, "/state/home") == host.read_text()
    assert not identity.follows_host(replace(networked, isolation=Isolation.BASIC))
