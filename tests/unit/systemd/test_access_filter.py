# SPDX-License-Identifier: Apache-2.0
"""An access filter's properties, whole, as systemd gets them."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from dbus_fast import Message

from sandboxd.core.model import Isolation, Network
from sandboxd.systemd.access_filter import AccessFilter
from sandboxd.systemd.bus import pack

IN4, IN6 = 2, 10
ALL = [[IN4, bytes(4), 0], [IN6, bytes(16), 0]]
LOCALHOST = [[IN4, b"\x7f\0\0\0", 8], [IN6, bytes(15) + b"\1", 128]]
OF_THE_CLOUD = [
    [IN4, b"\xa9\xfe\0\0", 16],
    [IN6, b"\xfe\x80" + bytes(14), 10],
    [IN6, b"\xfd\0\x0e\xc2" + bytes(10) + b"\2\x54", 128],
    [IN6, b"\xfd\x20\0\xce" + bytes(10) + b"\2\x54", 128],
    [IN4, bytes([168, 63, 129, 16]), 32],
    [IN4, bytes([100, 100, 100, 200]), 32],
]
DENIED = [ip_network("10.0.0.0/8"), ip_network("fd12:3456::/32")]
DENIED_FORM = [[IN4, b"\x0a\0\0\0", 8], [IN6, b"\xfd\x12\x34\x56" + bytes(12), 32]]


def names(level: Isolation, network: Network) -> list[str]:
    return [one.name for one in AccessFilter.of_sandbox(level, network, DENIED).properties()]


@pytest.mark.parametrize("level", Isolation)
@pytest.mark.parametrize("network", [Network.NONE, Network.LOOPBACK])
def test_all_but_localhost_is_denied_without_the_host_s_network(
    level: Isolation, network: Network
) -> None:
    properties = AccessFilter.of_sandbox(level, network, DENIED).properties()
    assert properties[0] == ("IPAddressDeny", "a(iayu)", ALL)
    assert properties[1] == ("IPAddressAllow", "a(iayu)", LOCALHOST)


@pytest.mark.parametrize("level", Isolation)
def test_the_cloud_s_and_the_configured_are_denied_on_the_host_s_network(level: Isolation) -> None:
    properties = AccessFilter.of_sandbox(level, Network.HOST, DENIED).properties()
    assert properties[0] == ("IPAddressDeny", "a(iayu)", [*OF_THE_CLOUD, *DENIED_FORM])
    # An empty list of exceptions would be one that systemd forgets earlier ones by.
    assert "IPAddressAllow" not in names(level, Network.HOST)


@pytest.mark.parametrize("network", Network)
def test_devices_are_closed_from_standard_on(network: Network) -> None:
    for level in (Isolation.STANDARD, Isolation.STRICT):
        last = AccessFilter.of_sandbox(level, network, DENIED).properties()[-1]
        assert last == ("DevicePolicy", "s", "closed")
    assert "DevicePolicy" not in names(Isolation.BASIC, network)


def test_the_bus_takes_the_form() -> None:
    packed = pack(AccessFilter.of_sandbox(Isolation.STRICT, Network.LOOPBACK, ()).properties())
    message = Message(
        destination="org.freedesktop.systemd1", path="/org/freedesktop/systemd1",
        interface="org.freedesktop.systemd1.Manager", member="StartTransientUnit",
        signature="ssa(sv)a(sa(sv))", body=["a.slice", "fail", packed, []],
    )  # fmt: skip
    assert message._marshall(False)
