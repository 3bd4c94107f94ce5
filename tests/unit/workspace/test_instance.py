# SPDX-License-Identifier: Apache-2.0
"""What a start makes in its directories, and takes back unless it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.errors import ConfigError
from sandboxd.osutil.privileges import of_this_process
from sandboxd.workspace import instance

OURS = of_this_process()


def made_by_a_start(state: Path) -> None:
    instance.instance_id(str(state))
    (state / "sandboxes").mkdir(exist_ok=True)
    (state / "sandboxes" / "new").touch()


@pytest.mark.parametrize("is_one", [False, True])
def test_what_a_hold_made_goes_with_it(tmp_path: Path, *, is_one: bool) -> None:
    state = tmp_path / "deep" / "state"
    runtime = state if is_one else tmp_path / "run"
    with instance.hold(str(state), str(runtime), OURS) as held:
        assert held.has_new_runtime
        made_by_a_start(state)
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    state, runtime = tmp_path / "state", tmp_path / "run"
    with instance.hold(str(state), str(runtime), OURS) as held:
        made_by_a_start(state)
        held.keep()
    before = sorted(tmp_path.rglob("*"))
    assert instance.is_here(str(state), "/nonexistent")
    assert instance.runtime_directory(str(state)) == str(runtime)
    with instance.hold(str(state), str(tmp_path / "other"), OURS):
        (state / "draining").touch()
    assert sorted(tmp_path.rglob("*")) == before
    assert instance.runtime_directory(str(state)) == str(runtime)


def test_a_directory_in_use_is_left_alone_and_the_other_taken_back(tmp_path: Path) -> None:
    state, runtime, mine = (str(tmp_path / name) for name in ("state", "run", "mine"))
    with instance.hold(state, runtime, OURS) as held:
        held.keep()
        before = sorted(tmp_path.rglob("*"))
        for directories in ((mine, runtime), (state, mine)):
            with pytest.raises(ConfigError, match="another sandboxd"):
                with instance.hold(*directories, OURS):
                    pass
            assert sorted(tmp_path.rglob("*")) == before


def test_where_sandboxd_never_was(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "missing", tmp_path / "file"):
        assert not instance.is_here(str(place), str(place))
    assert instance.runtime_directory(str(tmp_path)) is None
