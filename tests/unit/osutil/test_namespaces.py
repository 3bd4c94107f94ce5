# SPDX-License-Identifier: Apache-2.0
"""Namespaces by the files of /proc."""

from __future__ import annotations

import os

from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.namespaces import namespace_number, open_namespace


def test_each_kind_has_a_number_of_its_own() -> None:
    kinds = ("ipc", "mnt", "net", "pid", "user", "uts")
    assert len({namespace_number(kind) for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert namespace_number(kind, os.getpid()) == namespace_number(kind)


def test_a_descriptor_is_the_namespace_s() -> None:
    with closing_fd(open_namespace("ipc")) as fd:
        assert os.fstat(fd).st_ino == namespace_number("ipc")
