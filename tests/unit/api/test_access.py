# SPDX-License-Identifier: Apache-2.0
"""The caller is who the kernel says it is."""

from __future__ import annotations

import os
import socket

import pytest

from sandboxd.api.connection import Connection
from sandboxd.api.peer import NOBODY, Peer, read_peer
from tests.unit.api.harness import served


def test_the_kernel_names_this_process() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        peer = read_peer(one)
    groups = frozenset(os.getgroups())
    assert peer == Peer(os.getpid(), os.getuid(), os.getgid(), groups)


def test_a_socket_without_credentials_is_nobodys() -> None:
    with socket.socket(socket.AF_INET) as inet:
        assert read_peer(inet) is None
    unconnected = socket.socket(socket.AF_UNIX)
    with unconnected:
        assert read_peer(unconnected) is None


@pytest.mark.parametrize(
    ("peer", "is_admin"),
    [
        (Peer(1, 0, 0, frozenset()), True),
        (Peer(1, 1000, 1000, frozenset()), False),
        (Peer(1, 1000, 27, frozenset()), True),
        (Peer(1, 1000, 1000, frozenset({4, 27})), True),
        (Peer(1, 1000, 0, frozenset({0})), False),
    ],
)
def test_root_and_the_admin_group_are_admins(peer: Peer, is_admin: bool) -> None:
    caller = peer.as_caller({27})
    assert caller.is_admin is is_admin
    assert caller.may_see(4242) is is_admin
    assert caller.may_see(peer.uid)


def test_nobody_owns_and_sees_nothing() -> None:
    assert not any(NOBODY.may_see(uid) for uid in (0, 65534, 1000))


async def test_others_things_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as server:
        # Connection.peer is read at accept, so each caller gets a connection of its own.
        def become(uid: int) -> None:
            peer = Peer(1, uid, uid, frozenset())
            monkeypatch.setattr("sandboxd.api.connection.read_peer", lambda _socket: peer)

        close = {"Connection": "close"}
        server.commands(seconds=None)
        become(1001)
        run = {"argv": ["true"], "name": "a", "wait": False}
        created = await server.ask("POST", "/v1/run", run, headers=close)
        box, execution = created.json["sandbox_id"], created.json["id"]
        paths = [f"/v1/sandboxes/{box}", "/v1/sandboxes/a", f"/v1/sandboxes/{box}/executions",
                 f"/v1/sandboxes/{box}/executions/{execution}",
                 f"/v1/sandboxes/{box}/executions/{execution}/output"]  # fmt: skip
        for uid, visible in ((1001, True), (1002, False)):
            become(uid)
            for path in paths:
                answered = await server.ask("GET", path, headers=close)
                assert answered.status == (200 if visible else 404), path
            for path, key in (("/v1/sandboxes", "sandboxes"), ("/v1/executions", "executions")):
                found = (await server.ask("GET", path, headers=close)).json[key]
                assert len(found) == visible
        become(0)
        assert (await server.ask("GET", paths[0], headers=close)).json["owner_uid"] == 1001


async def test_an_unknown_peer_is_refused_but_for_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxd.api.connection.read_peer", lambda _socket: None)
    assert Connection.peer is None
    async with served() as server:
        answered = await server.ask("GET", "/v1/sandboxes")
        assert (answered.status, answered.error["code"]) == (403, "ACCESS_DENIED")
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert (await server.ask("GET", path)).status == 200


async def test_no_header_makes_a_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(1, 1001, 1001, frozenset())
    monkeypatch.setattr("sandboxd.api.connection.read_peer", lambda _socket: peer)
    async with served() as server:
        headers = {"X-Remote-User": "root", "Authorization": "Basic cm9vdDo=", "X-Uid": "0"}
        created = await server.ask("POST", "/v1/sandboxes", {}, headers=headers)
        assert created.json["owner_uid"] == 1001
