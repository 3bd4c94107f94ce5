# SPDX-License-Identifier: Apache-2.0
"""Remedies for missing features, by the place of the daemon. Pure.

Only remedies that work in the place: a container has no systemd to boot with.
"""

from __future__ import annotations

import enum


class Environment(enum.StrEnum):
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
        Environment.HOST: "run sandboxd as root, or install its package, whose service does",
        Environment.PODMAN: "run sandboxd as root: podman run --user 0, by root's podman",
        Environment.DOCKER: "run sandboxd as root: docker run --user 0",
        Environment.KUBERNETES: "run sandboxd as root: securityContext: {runAsUser: 0}",
        Environment.CONTAINER: "run sandboxd as root",
    },
    Need.MOUNTS: {
        Environment.HOST: "give sandboxd CAP_SYS_ADMIN, as root of the host has it",
        Environment.PODMAN: "podman run --privileged, or --cap-add CAP_SYS_ADMIN "
        "--security-opt unmask=ALL",
        Environment.DOCKER: "docker run --privileged, or --cap-add CAP_SYS_ADMIN "
        "--security-opt apparmor=unconfined",
        Environment.KUBERNETES: "securityContext: {privileged: true}, or CAP_SYS_ADMIN by "
        "capabilities: {add: [SYS_ADMIN]} and appArmorProfile: {type: Unconfined}",
        Environment.CONTAINER: "give the container CAP_SYS_ADMIN: it must not be "
        "an unprivileged one",
    },
    Need.KERNEL_LIMITS: {
        Environment.HOST: "boot with systemd and unified cgroups (cgroup v2), and run "
        "sandboxd as root",
        Environment.PODMAN: f"{_SERVICE}: podman run -v /run/sandboxd:/run/sandboxd",
        Environment.DOCKER: f"{_SERVICE}: docker run -v /run/sandboxd:/run/sandboxd",
        Environment.KUBERNETES: f"{_SERVICE}: a volume of hostPath /run/sandboxd",
        Environment.CONTAINER: _SERVICE,
    },
}


def remedy(need: Need, place: Environment) -> str:
    """Return the remedy for a need in a place."""
    return _REMEDIES[need][place]
