# SPDX-License-Identifier: Apache-2.0
"""What of the contract runs over which scheme.

Over the rlimit scheme, on the bare host, everything that the scheme can have. Over systemd, in an
emulated machine where a test takes ten times as long, what depends on who holds the limits: limits,
verdicts, ends, isolation, leftovers, adoption. Of the files below, which ask the API, the file API
and the shim's pipes and never the scheme, the first test alone runs there, as smoke; of the
escapes' positive controls those alone that the bare host cannot run. The full count
(SANDBOXD_SOAK=1, as `./dev soak` sets it) and a run that names a file take all of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

# Schemes by their daemon's setting, see SANDBOX_CGROUP_MODE.
MODES = {"rlimit": "off", "systemd": "required"}
# What no host can have under a scheme: parameters of a test by their name, and
# what an attempt needs.
IMPOSSIBLE = {"rlimit": {"offered": "strict", "place": "strict", "needs": "memory_max"}}
SCHEME_FREE = frozenset(
    f"test_{name}.py"
    for name in (
        "archives",
        "attach",
        "bad_paths",
        "bad_requests",
        "callers",
        "execution_events",
        "files",
        "follow",
        "input_output",
        "keys",
        "limit_requests",
        "links_out",
        "lists",
        "stdin",
        "strangers",
        "terminal",
    )
)
CONTROL = "test_it_can_be_done_at_all"


def left_out(items: Sequence[pytest.Item], *, everything: bool) -> list[pytest.Item]:
    """Return the tests among `items` that this run does not take.

    everything: leave out only what no host could run under the test's scheme.
    """
    smoke: set[object] = set()
    return [
        item
        for item in items
        if _is_impossible(item) or not (everything or _is_wanted(item, smoke))
    ]


def takes_everything(config: pytest.Config) -> bool:
    """Whether the run is at full count, or names a file or a test of the contract."""
    full = float(os.environ.get("SANDBOXD_SOAK") or "0.1") >= 1
    return full or any("tests/contract/" in argument for argument in config.args)


def _parameters(item: pytest.Item) -> dict[str, object]:
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}


def _is_impossible(item: pytest.Item) -> bool:
    parameters = _parameters(item)
    impossible = IMPOSSIBLE.get(str(parameters.get("scheme", "")), {})
    found = {**parameters, "needs": getattr(parameters.get("attempt"), "needs", None)}
    return any(found.get(name) == value for name, value in impossible.items())


def _is_wanted(item: pytest.Item, smoke: set[object]) -> bool:
    """smoke: the files that have had their one test, by path; the file of `item` is added."""
    parameters = _parameters(item)
    if parameters.get("scheme") != "systemd":
        return True
    if getattr(item, "originalname", None) == CONTROL:
        attempt = parameters["attempt"]
        return bool(getattr(attempt, "needs", None) or getattr(attempt, "control_needs", None))
    if item.path.name not in SCHEME_FREE or item.path in smoke:
        return item.path.name not in SCHEME_FREE
    smoke.add(item.path)
    return True
