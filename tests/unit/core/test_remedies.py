# SPDX-License-Identifier: Apache-2.0
"""What is advised fits where the daemon runs, and where that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.cgroup.host import place
from sandboxd.core.levels import Findings, offers
from sandboxd.core.model import Isolation
from sandboxd.core.remedies import Need, Place, remedy


@pytest.mark.parametrize(
    ("files", "environ", "found"),
    [
        ({}, {}, Place.HOST),
        ({"run/.containerenv": ""}, {}, Place.PODMAN),
        ({".dockerenv": ""}, {}, Place.DOCKER),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Place.KUBERNETES),
        ({"run/systemd/container": "podman\n"}, {}, Place.PODMAN),
        ({"run/systemd/container": "lxc\n"}, {}, Place.CONTAINER),
        ({"proc/1/environ": "A=b\0container=docker\0"}, {}, Place.DOCKER),
        ({"proc/1/environ": "A=b\0container=kubernetes-like\0"}, {}, Place.CONTAINER),
        ({"proc/1/environ": "A=container=docker\0"}, {}, Place.HOST),
        ({"proc/1/environ": "A=\u00e4\0container=podman\0"}, {}, Place.PODMAN),
        # What cannot be read, as /proc/1/environ in many a container.
        ({"proc/1/environ/kept": ""}, {}, Place.HOST),
    ],
)
def test_where_it_runs_is_told_by_marks(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], found: Place
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert place(str(tmp_path), environ) is found


@pytest.mark.parametrize("where", Place)
def test_there_is_a_way_for_each_need_everywhere(where: Place) -> None:
    for need in Need:
        assert remedy(need, where)
    # Nobody boots a container, and nobody becomes root of its host.
    if where is not Place.HOST:
        assert "boot" not in remedy(Need.KERNEL_LIMITS, where)
    found = offers(Findings(is_root=False, kernel_limits=False, place=where), "auto")
    ways = {feature.remedy for feature in found.levels[Isolation.STRICT].missing}
    assert ways == {remedy(Need.ROOT, where), remedy(Need.KERNEL_LIMITS, where)}


def test_each_kind_of_container_has_its_own_words() -> None:
    for where, word in (
        (Place.PODMAN, "podman run"), (Place.DOCKER, "docker run"),
        (Place.KUBERNETES, "securityContext"),
    ):  # fmt: skip
        assert word in remedy(Need.MOUNTS, where)
