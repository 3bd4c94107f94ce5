# SPDX-License-Identifier: Apache-2.0
"""What the kernel says that this process may do."""

from __future__ import annotations

import os

from sandboxd.osutil.privileges import Privileges, of_this_process


def test_this_process_s() -> None:
    found = of_this_process()
    assert found.uid == os.geteuid()
    assert found.is_root is (os.geteuid() == 0)
    assert found.is_root or not found.has(21)


def test_capabilities_are_a_mask() -> None:
    some = Privileges(0, 1 << 19 | 1 << 24)
    assert [number for number in range(41) if some.has(number)] == [19, 24]
    assert not Privileges(1000).has(0)
