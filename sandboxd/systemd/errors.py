# SPDX-License-Identifier: Apache-2.0
"""D-Bus error names -> sandboxd's errors, in one table.

Sources: D-Bus specification, "Standard errors"; systemd: src/libsystemd/sd-bus/bus-common-errors.h.
"""

from __future__ import annotations

from sandboxd.errors import (
    BusUnavailable,
    HostDiskFull,
    PropertyRejected,
    SandboxdError,
    UnitExists,
    UnitMissing,
)

_DBUS = "org.freedesktop.DBus.Error."
_SYSTEMD = "org.freedesktop.systemd1."

# The call was not delivered: systemd is not on the bus, as for a moment in a daemon-reexec.
NOT_DELIVERED = frozenset(
    _DBUS + name for name in ("NameHasNoOwner", "ServiceUnknown", "Spawn.ExecFailed",
                              "Spawn.ChildExited", "Spawn.ChildSignaled", "Spawn.Failed")
)  # fmt: skip

_KINDS: dict[str, type[SandboxdError]] = {
    **dict.fromkeys(NOT_DELIVERED, BusUnavailable),
    _DBUS + "Disconnected": BusUnavailable,
    _DBUS + "LimitsExceeded": BusUnavailable,
    _DBUS + "NoReply": BusUnavailable,
    _DBUS + "NoServer": BusUnavailable,
    _DBUS + "Timeout": BusUnavailable,
    _DBUS + "TimedOut": BusUnavailable,
    _SYSTEMD + "ShuttingDown": BusUnavailable,
    _DBUS + "UnknownObject": UnitMissing,
    _SYSTEMD + "NoSuchUnit": UnitMissing,
    _SYSTEMD + "UnitExists": UnitExists,
    # sd-bus-errors(3): an errno by name. Transient units are files below /run.
    "System.Error.ENOSPC": HostDiskFull,
    "System.Error.EDQUOT": HostDiskFull,
}


def from_dbus(name: str, text: str, subject: str) -> SandboxdError:
    """Return the error for a D-Bus error reply. subject: the unit or thing asked about."""
    kind = _KINDS.get(name, PropertyRejected)
    if issubclass(kind, PropertyRejected):
        return kind(subject, name, text)
    details = {"unit": subject, "dbus_error": name}
    if kind is HostDiskFull:
        hint = "free space on the file system of /run, where systemd keeps transient units"
        return kind(f"cannot set up {subject}: {text}", hint=hint, details=details)
    verb = "reach systemd for" if kind is BusUnavailable else "find"
    return kind(f"cannot {verb} {subject}: {text}", details=details)
