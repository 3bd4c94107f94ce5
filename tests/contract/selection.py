# SPDX-License-Identifier: Apache-2.0
"""What of the contract runs over which scheme, and what over the fakes of the engine's ports.

Over the rlimit scheme, on the bare host, everything that the scheme can have. Over systemd, in an
emulated machine where a test takes ten times as long, what depends on who holds the limits: limits,
verdicts, ends, isolation, leftovers, adoption. Of the files below, which ask the API, the file API
and the shim's pipes and never the scheme, the first test alone runs there, as smoke; of the
escapes' positive controls those alone that the bare host cannot run. The full count
(SANDBOXD_SOAK=1, as `./dev soak` sets it) and a run that names a file take all of it.

Over the fakes, which the unit tests have in the place of processes and disks, what needs neither:
what real daemons promise there keeps the fakes honest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

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
FAKES = "fakes"
# Files that run over the fakes, less the tests of each that need a shell or a uid of its own.
FAKED: Mapping[str, frozenset[str]] = {
    "test_bad_requests.py": frozenset({"test_what_the_kernel_takes_is_taken"}),
    "test_callers.py": frozenset({"test_a_command_has_neither_its_caller_s_uid_nor_root_s"}),
    "test_keys.py": frozenset({"test_a_run_whose_client_left_is_run_once"}),
    "test_limit_requests.py": frozenset(),
    "test_lists.py": frozenset(),
    "test_sandboxes.py": frozenset(),
}
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
    backend = str(parameters.get("backend", ""))
    if backend == FAKES:
        needy = FAKED.get(item.path.name)
        return needy is None or getattr(item, "originalname", None) in needy
    impossible = IMPOSSIBLE.get(backend, {})
    found = {**parameters, "needs": getattr(parameters.get("attempt"), "needs", None)}
    return any(found.get(name) == value for name, value in impossible.items())


def _is_wanted(item: pytest.Item, smoke: set[object]) -> bool:
    """smoke: the files that have had their one test, by path; the file of `item` is added."""
    parameters = _parameters(item)
    if parameters.get("backend") != "systemd":
        return True
    if getattr(item, "originalname", None) == CONTROL:
        attempt = parameters["attempt"]
        return bool(getattr(attempt, "needs", None) or getattr(attempt, "control_needs", None))
    if item.path.name not in SCHEME_FREE or item.path in smoke:
        return item.path.name not in SCHEME_FREE
    smoke.add(item.path)
    return True
