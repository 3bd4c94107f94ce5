# SPDX-License-Identifier: Apache-2.0
"""What is advised fits where the daemon runs, and where that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.cgroup.host import place
from sandboxd.core.levels import Findings, offers
from sandboxd.core.model import Isolation
from sandboxd.core.remedies import Environment, Need, remedy


@pytest.mark.parametrize(
    ("files", "environ", "found"),
    [
        ({}, {}, Environment.HOST),
        ({"run/.containerenv": ""}, {}, Environment.PODMAN),
        ({".dockerenv": ""}, {}, Environment.DOCKER),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Environment.KUBERNETES),
        ({"run/systemd/container": "podman\n"}, {}, Environment.PODMAN),
        ({"run/systemd/container": "lxc\n"}, {}, Environment.CONTAINER),
        ({"proc/1/environ": "A=b\0container=docker\0"}, {}, Environment.DOCKER),
        ({"proc/1/environ": "A=b\0container=kubernetes-like\0"}, {}, Environment.CONTAINER),
        ({"proc/1/environ": "A=container=docker\0"}, {}, Environment.HOST),
        ({"proc/1/environ": "A=\u00e4\0container=podman\0"}, {}, Environment.PODMAN),
        # What cannot be read, as /proc/1/environ in many a container.
        ({"proc/1/environ/kept": ""}, {}, Environment.HOST),
    ],
)
def test_where_it_runs_is_told_by_marks(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], found: Environment
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert place(str(tmp_path), environ) is found


@pytest.mark.parametrize("where", Environment)
def test_there_is_a_way_for_each_need_everywhere(where: Environment) -> None:
    for need in Need:
        assert remedy(need, where)
    # Nobody boots a container, and nobody becomes root of its host.
    if where is not Environment.HOST:
        assert "boot" not in remedy(Need.KERNEL_LIMITS, where)
    found = offers(Findings(is_root=False, kernel_limits=False, place=where), "auto")
    ways = {feature.remedy for feature in found.levels[Isolation.STRICT].lacks}
    assert ways == {remedy(Need.ROOT, where), remedy(Need.KERNEL_LIMITS, where)}


def test_each_kind_of_container_has_its_own_words() -> None:
    for where, word in (
        (Environment.PODMAN, "podman run"), (Environment.DOCKER, "docker run"),
        (Environment.KUBERNETES, "securityContext"),
    ):  # fmt: skip
        assert word in remedy(Need.MOUNTS, where)
