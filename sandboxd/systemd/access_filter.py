# SPDX-License-Identifier: Apache-2.0
"""The addresses and devices that a sandbox's slice denies, to root inside as well.

Source: systemd.resource-control(5), IPAddressDeny= and DevicePolicy=. An address in both lists is
allowed. A filter does not change while the sandbox lives.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from sandboxd.core.model import Isolation, Network
from sandboxd.systemd.properties import Property

Address = ipaddress.IPv4Network | ipaddress.IPv6Network

_EVERYTHING = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
_LOCALHOST = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
# Addresses of cloud metadata services, which give out a machine's keys: most link-local, AWS and
# Google by IPv6 also at fd00:ec2::254 and fd20:ce::254, Azure and Alibaba at one address each.
_OF_THE_CLOUD = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16", "fe80::/10",
        "fd00:ec2::254/128", "fd20:ce::254/128", "168.63.129.16/32", "100.100.100.200/32",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AccessFilter:
    """The access filter of a slice. denied: addresses; allowed: exceptions from `denied`.

    no_devices: all but null, zero, full, random, urandom, tty and pseudo-terminals are denied.
    """

    denied: tuple[Address, ...]
    allowed: tuple[Address, ...]
    no_devices: bool

    @classmethod
    def of_sandbox(
        cls, level: Isolation, network: Network, denied: Iterable[Address]
    ) -> AccessFilter:
        """Return a sandbox's filter; `denied`: the admin's addresses beside the cloud's."""
        if network is Network.HOST:
            return cls((*_OF_THE_CLOUD, *denied), (), level.has_own_root)
        return cls(_EVERYTHING, _LOCALHOST, level.has_own_root)

    def properties(self) -> list[Property]:
        """Return the slice's properties."""
        properties = []
        if self.denied:
            properties.append(Property("IPAddressDeny", "a(iayu)", _form(self.denied)))
        if self.allowed:
            properties.append(Property("IPAddressAllow", "a(iayu)", _form(self.allowed)))
        if self.no_devices:
            properties.append(Property("DevicePolicy", "s", "closed"))
        return properties


NO_FILTER = AccessFilter((), (), no_devices=False)


def _form(addresses: Iterable[Address]) -> list[list[object]]:
    families = {4: socket.AF_INET, 6: socket.AF_INET6}
    return [
        [int(families[one.version]), one.network_address.packed, one.prefixlen] for one in addresses
    ]
