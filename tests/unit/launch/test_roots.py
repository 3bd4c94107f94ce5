# SPDX-License-Identifier: Apache-2.0
"""What the builder is asked of binds, and what becomes of its answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from sandboxd.core.model import Bind, Isolation, Ownership, Sandbox
from sandboxd.launch import roots as module
from sandboxd.launch.builders import Builders
from sandboxd.launch.roots import Roots
from sandboxd.osutil.privileges import Privileges
from sandboxd.protocol.building import (
    Answer,
    BindVerdict,
    Built,
    Failed,
    Failure,
    Notes,
    Order,
)  # fmt: skip
from tests.unit.values import a_sandbox

BIND = Bind("/srv/a", "/mnt/a", writable=True, ownership=None)


class Answers:
    """Stands for builders: keeps the orders, gives what it was told to."""

    def __init__(self, *answers: Answer | None) -> None:
        self.answers = list(answers)
        self.orders: list[Any] = []

    async def ask(self, order: Order, wanted: type[Answer]) -> Answer:
        self.orders.append(order)
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.get_running_loop().create_future()
        assert answer is not None
        return answer


def roots(builders: Answers, **bind_paths: bool) -> Roots:
    listed = {f"/{name}": writable for name, writable in bind_paths.items()}
    return Roots(
        cast(Builders, builders), "/run/x", Privileges(0), images=None, system_paths=(),
        etc_hidden=(),
        bind_paths=listed,
    )  # fmt: skip


def sandbox(*binds: Bind) -> Sandbox:
    made = a_sandbox()
    made.isolation, made.binds = Isolation.STANDARD, binds
    return made


async def build(builders: Answers, *binds: Bind) -> tuple[Bind, ...]:
    return await roots(builders).build(
        sandbox(*binds), home="/h", tmp_directory="/t", identity_files={}
    )


async def test_binds_come_back_with_what_became_of_them() -> None:
    builders = Answers(Built((BindVerdict(True, "x"), BindVerdict(False, "y"))))
    made = await build(builders, BIND, replace(BIND, target="/mnt/b"))
    assert [(bind.ownership, bind.ownership_detail) for bind in made] == [
        (Ownership.MAPPED, "x"), (Ownership.HOST, "y")
    ]  # fmt: skip


async def test_what_nobody_kept_the_answer_of_is_made_anew() -> None:
    """A daemon that was killed in between has let nothing run there."""
    known = replace(BIND, ownership=Ownership.MAPPED, ownership_detail="x")
    builders = Answers(Built(None), Built((BindVerdict(False, "y"),)))
    assert await build(builders, known) == (known,)
    await build(builders, BIND)
    assert [order.anew for order in builders.orders] == [False, True]


async def test_listed_paths_are_looked_at_in_parts_that_an_answer_has_room_for() -> None:
    builders = Answers(Notes(("",) * 15 + ("why",)), Failed(Failure.OTHER, "no"))
    tried = roots(builders, **{f"p{number}": True for number in range(17)})
    await tried._try_binds()
    assert [len(order.binds) for order in builders.orders] == [16, 1]
    assert tried.notes == (
        "binds of /p15: sandboxes see the host's owners: why",
        "binds of /p16: sandboxes see the host's owners: no",
    )


async def test_a_file_system_that_hangs_does_not_keep_a_daemon_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_BINDS_SECONDS", 0.01)
    tried = roots(Answers(None), dead=False)
    await tried._try_binds()
    assert tried.notes == ("binds of /dead: sandboxes see the host's owners: it does not answer",)
