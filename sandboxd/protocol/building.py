# SPDX-License-Identifier: Apache-2.0
"""Orders to builders, and answers: one order in a memfd, one answer through a pipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sandboxd.protocol.codec import Kinds
from sandboxd.protocol.specification import HostRoot


@dataclass(frozen=True, slots=True)
class BindSpec:
    """A path of the host, and the path inside."""

    source: str
    target: str
    writable: bool


@dataclass(frozen=True, slots=True)
class HostParts:
    """What a root takes from the host.

    is_strict: without files that tell how idle processors are. system_paths: further ones,
    read-only. etc_hidden: names of /etc left out. identity_files: path inside -> file.
    """

    is_strict: bool
    system_paths: tuple[str, ...]
    etc_hidden: tuple[str, ...]
    identity_files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RootSpec:
    """A sandbox's root.

    image: in the place of the host's own /usr and /etc. layers: whether the host's directories are
    covered, so that sandboxes share no inode. home: the path on the host.
    """

    host: HostParts
    image: str | None
    layers: bool
    home: str
    home_inside: str
    tmp_directory: str
    shm_bytes: int
    binds: tuple[BindSpec, ...]


@dataclass(frozen=True, slots=True)
class Build:
    """Make a sandbox's namespaces and pin them. Built follows.

    loopback: whether a new network namespace has one. uid: the sandbox's, also the gid. owner_uid:
    of who asked for the sandbox. anew: though all pins exist.
    """

    pins_directory: str
    pins: tuple[str, ...]
    loopback: bool
    root: RootSpec
    uid: int
    owner_uid: int
    anew: bool


@dataclass(frozen=True, slots=True)
class TryBuild:
    """Build, enter and remove again."""

    order: Build


@dataclass(frozen=True, slots=True)
class TryLayers:
    """Cover the host's directories, in a namespace of the builder's."""

    pins_root: str
    host: HostParts


@dataclass(frozen=True, slots=True)
class TryHostRoot:
    """Make an execution's mounts over the host's root, in a namespace of the builder's."""

    root: HostRoot


@dataclass(frozen=True, slots=True)
class TryBinds:
    """Map the owners of paths to a sandbox's uid. Notes follow, one for each."""

    binds: tuple[BindSpec, ...]
    uid: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a sandbox's pins."""

    pins_directory: str


@dataclass(frozen=True, slots=True)
class RemoveOthers:
    """Remove the pins of all sandboxes but `kept`."""

    pins_root: str
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveUnused:
    """Remove those of our mounts in which nothing is."""

    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveAll:
    """Remove all pins."""

    pins_root: str


@dataclass(frozen=True, slots=True)
class HoldDisk:
    """Make, mount or resize a disk so that size_bytes are usable. gid: may pass its top."""

    root: str
    name: str
    image: str
    size_bytes: int
    gid: int


@dataclass(frozen=True, slots=True)
class RemoveDisk:
    """Unmount a disk."""

    root: str
    name: str


@dataclass(frozen=True, slots=True)
class RemoveOtherDisks:
    """Unmount all disks but `kept`."""

    root: str
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveAllDisks:
    """Unmount all disks."""

    root: str


@dataclass(frozen=True, slots=True)
class RemoveTree:
    """Remove a tree, of about `most` entries at most. Removed follows."""

    path: str
    most: int


Order = (
    Build
    | TryBuild
    | TryLayers
    | TryHostRoot
    | TryBinds
    | Remove
    | RemoveOthers
    | RemoveUnused
    | RemoveAll
    | HoldDisk
    | RemoveDisk
    | RemoveOtherDisks
    | RemoveAllDisks
    | RemoveTree
)
ORDERS: Kinds[Order] = Kinds(
    "op",
    {
        "build": Build,
        "try": TryBuild,
        "try_layers": TryLayers,
        "try_host_root": TryHostRoot,
        "try_binds": TryBinds,
        "remove": Remove,
        "remove_others": RemoveOthers,
        "remove_unused": RemoveUnused,
        "remove_all": RemoveAll,
        "hold_disk": HoldDisk,
        "remove_disk": RemoveDisk,
        "remove_other_disks": RemoveOtherDisks,
        "remove_all_disks": RemoveAllDisks,
        "remove_tree": RemoveTree,
    },
)


class Failure(StrEnum):
    """What an order failed for, as far as the daemon says it in other words."""

    BUBBLEWRAP = "bubblewrap"
    IMAGE = "image"
    BIND = "bind"
    FULL = "full"
    PERMISSION = "permission"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class BindVerdict:
    """Whether a bind's owner is mapped; to whom new files belong, or why it is not."""

    is_mapped: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Built:
    """binds: one verdict for each; None where all pins existed."""

    binds: tuple[BindVerdict, ...] | None


@dataclass(frozen=True, slots=True)
class Notes:
    """For each path why its owner's files stay out of reach, or ""."""

    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """has_ended: whether all of the tree is gone."""

    has_ended: bool


@dataclass(frozen=True, slots=True)
class Done:
    """The order is done."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The order is not done. text: for people."""

    kind: Failure
    text: str


Answer = Built | Notes | Removed | Done | Failed
ANSWERS: Kinds[Answer] = Kinds(
    "answer", {"built": Built, "notes": Notes, "removed": Removed, "done": Done, "failed": Failed}
)
