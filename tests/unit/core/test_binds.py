# SPDX-License-Identifier: Apache-2.0
"""Only what the admin listed, only where the root has nothing of its own."""

from __future__ import annotations

import pytest

from sandboxd.core.binds import BindPolicy
from sandboxd.core.model import Bind
from sandboxd.errors import AccessDenied, ConfigError, InvalidRequest

POLICY = BindPolicy.of_settings(["/srv/models", "/srv/cache:rw"], ["/opt", "/nix/store"])


def test_what_is_listed_may_be_bound() -> None:
    POLICY.check([Bind("/srv/models", "/mnt/models"), Bind("/srv/cache", "/cache", writable=True)])


@pytest.mark.parametrize(
    ("source", "writable"),
    [("/srv", False), ("/srv/models/", False), ("/srv/models/x", False), ("/etc", False),
     ("/srv/../srv/models", False), ("/", False), ("", False), ("/srv/models", True)],
)  # fmt: skip
def test_a_source_is_one_of_the_list_exactly(source: str, writable: bool) -> None:
    with pytest.raises(AccessDenied):
        POLICY.check([Bind(source, "/mnt", writable=writable)])


@pytest.mark.parametrize(
    "target",
    ["/", "", "mnt", "/mnt/", "/mnt/..", "/./mnt", "//mnt", "/etc", "/etc/ssl", "/usr/share/x",
     "/proc", "/proc/self", "/dev/shm", "/tmp/x", "/home/sandbox", "/lib64", "/var/tmp", "/sys",
     "/opt/x", "/nix/x", "/run/x"],
)  # fmt: skip
def test_a_target_is_plain_and_not_the_root_s_own(target: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        POLICY.check([Bind("/srv/models", target)])
    assert caught.value.details["fields"][0]["path"] == "binds.0.target"


@pytest.mark.parametrize("second", ["/mnt", "/mnt/a", "/mnt/a/b"])
def test_targets_do_not_overlap(second: str) -> None:
    with pytest.raises(InvalidRequest, match="overlaps") as caught:
        POLICY.check([Bind("/srv/models", "/mnt/a"), Bind("/srv/cache", second)])
    assert caught.value.details["fields"][0]["path"] == "binds.1.target"


@pytest.mark.parametrize("entry", ["srv", "/", "/srv/..", ":rw", "/srv/", ""])
def test_a_list_with_anything_else_refuses_to_start(entry: str) -> None:
    with pytest.raises(ConfigError):
        BindPolicy.of_settings([entry], [])


@pytest.mark.parametrize(
    "entries",
    [["/srv/cache:rw", "/srv/cache/models"], ["/srv/cache/a/b:rw", "/srv/cache:rw"],
     ["/srv/cache", "/srv/cache/a:rw", "/srv/cache/a/b/c"]],
)  # fmt: skip
def test_nothing_is_listed_below_what_sandboxes_may_write(entries: list[str]) -> None:
    """There they may put a link in its place."""
    with pytest.raises(ConfigError, match="below"):
        BindPolicy.of_settings(entries, [])


def test_a_writable_path_may_lie_below_a_readable_one() -> None:
    BindPolicy.of_settings(["/srv/cache", "/srv/cache/a:rw", "/srv/cache-2"], [])
