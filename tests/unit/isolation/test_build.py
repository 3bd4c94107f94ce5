# SPDX-License-Identifier: Apache-2.0
"""What a builder says where the host lacks something."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.isolation import bubblewrap, build, mounts
from sandboxd.osutil import linux
from sandboxd.protocol.building import Build
from tests.conftest import unmet
from tests.unit.isolation.test_root import spec


def test_a_host_without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "PROGRAMS", ("/nonexistent/bwrap",))
    order = Build("/pins/one", ("mnt",), False, spec(), 65536, 0, False)
    with (
        pytest.raises(build.NoBubblewrap, match="not installed"),
        build._held_root(order, [], None),
    ):
        raise AssertionError("there is none")


@pytest.mark.usefixtures("requires_root")
@pytest.mark.parametrize("layers", [True, False])
def test_a_root_can_be_made_and_entered(tmp_path: Path, layers: bool) -> None:
    """Whether the host can put layers over its directories or not."""
    if not any(map(os.path.exists, bubblewrap.PROGRAMS)):
        unmet("bubblewrap (apt-get install bubblewrap)")
    tmp_path.chmod(0o755)
    pins = tmp_path / "pins"
    pins.mkdir()
    for name in ("passwd", "hosts"):
        (tmp_path / name).write_text(name)
    files = {f"/etc/{name}": str(tmp_path / name) for name in ("passwd", "hosts")}
    root = spec(
        layers=layers, home=str(tmp_path), tmp_directory=str(tmp_path),
        host={"identity_files": files},
    )  # fmt: skip
    kinds = ("ipc", "uts", "mnt")
    order = Build(str(pins / "one"), kinds, False, root, uid=65536, owner_uid=0, anew=False)

    def look() -> None:
        mounts.join(order.pins_directory, order.pins)
        found = [Path("/etc", name).read_text() for name in ("passwd", "hosts")]
        if found != ["passwd", "hosts"] or os.path.exists("/etc/machine-id"):
            raise OSError(f"{found} {os.listdir('/etc')}")
        if not os.path.exists("/etc/services") and not os.path.exists("/etc/os-release"):
            raise OSError(f"nothing but {os.listdir('/etc')}")

    def work() -> None:
        linux.unshare(linux.CLONE_NEWNS)
        mounts.stop_propagation()
        build.build(order)
        build._in_child(look, "look around")

    build._in_child(work, "make a root")
