# SPDX-License-Identifier: Apache-2.0
"""What systemd answers becomes an error that says what to do."""

from __future__ import annotations

import pytest

from sandboxd.errors import (
    BusUnavailable,
    HostDiskFull,
    PropertyRejected,
    SandboxdError,
    UnitExists,
    UnitMissing,
)
from sandboxd.systemd.errors import from_dbus


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org.freedesktop.DBus.Error.NameHasNoOwner", BusUnavailable),
        ("org.freedesktop.DBus.Error.LimitsExceeded", BusUnavailable),
        ("org.freedesktop.systemd1.NoSuchUnit", UnitMissing),
        ("org.freedesktop.systemd1.UnitExists", UnitExists),
        ("System.Error.ENOSPC", HostDiskFull),
        ("System.Error.EDQUOT", HostDiskFull),
        ("System.Error.EINVAL", PropertyRejected),
    ],
)
def test_each_name_has_its_kind(name: str, kind: type[SandboxdError]) -> None:
    error = from_dbus(name, "the cause", "a.scope")
    assert type(error) is kind
    assert "a.scope" in error.message
    assert "the cause" in error.message
    assert error.details["dbus_error"] == name
