# SPDX-License-Identifier: Apache-2.0
"""Remedies for missing features, by the place of the daemon. Pure.

Only remedies that work in the place: a container has no systemd to boot with.
"""

from __future__ import annotations

import enum


class Place(enum.StrEnum):
    """The daemon's environment."""

    HOST = "host"
    PODMAN = "podman"
    DOCKER = "docker"
    KUBERNETES = "kubernetes"
    CONTAINER = "container"


class Need(enum.StrEnum):
    """A missing prerequisite."""

    ROOT = "root"
    MOUNTS = "mounts"
    KERNEL_LIMITS = "kernel limits"


_SERVICE = "run sandboxd on the host (its package is a service) and bring its socket in"
_REMEDIES = {
    Need.ROOT: {
        Place.HOST: "run sandboxd as root, or install its package, whose service does",
        Place.PODMAN: "run sandboxd as root: podman run --user 0, by root's podman",
        Place.DOCKER: "run sandboxd as root: docker run --user 0",
        Place.KUBERNETES: "run sandboxd as root: securityContext: {runAsUser: 0}",
        Place.CONTAINER: "run sandboxd as root",
    },
    Need.MOUNTS: {
        Place.HOST: "give sandboxd CAP_SYS_ADMIN, as root of the host has it",
        Place.PODMAN: "podman run --privileged, or --cap-add CAP_SYS_ADMIN "
        "--security-opt unmask=ALL",
        Place.DOCKER: "docker run --privileged, or --cap-add CAP_SYS_ADMIN "
        "--security-opt apparmor=unconfined",
        Place.KUBERNETES: "securityContext: {privileged: true}, or CAP_SYS_ADMIN by capabilities: "
        "{add: [SYS_ADMIN]} and appArmorProfile: {type: Unconfined}",
        Place.CONTAINER: "give the container CAP_SYS_ADMIN: it must not be an unprivileged one",
    },
    Need.KERNEL_LIMITS: {
        Place.HOST: "boot with systemd and unified cgroups (cgroup v2), and run sandboxd as root",
        Place.PODMAN: f"{_SERVICE}: podman run -v /run/sandboxd:/run/sandboxd",
        Place.DOCKER: f"{_SERVICE}: docker run -v /run/sandboxd:/run/sandboxd",
        Place.KUBERNETES: f"{_SERVICE}: a volume of hostPath /run/sandboxd",
        Place.CONTAINER: _SERVICE,
    },
}


def remedy(need: Need, place: Place) -> str:
    """Return the remedy for a need in a place."""
    return _REMEDIES[need][place]
