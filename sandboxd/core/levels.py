# SPDX-License-Identifier: Apache-2.0
"""Which isolation levels and networks this host offers and its admin allows, and which one a
request gets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandboxd.core.model import Isolation, Network
from sandboxd.core.remedies import Need, Place, remedy
from sandboxd.errors import AccessDenied, ConfigError, IsolationUnsupported, SandboxdError

AUTO = "auto"
# Where a sandbox with a root of its own has its home.
HOME_INSIDE = "/home/sandbox"
# What is one directory of the sandbox's own, where the host allows it to have its own mounts.
TMP_INSIDE = ("/tmp", "/var/tmp")  # noqa: S108
_NONE = "commands run as the daemon's own uid and see its files: no_new_privs alone"
_BASIC = "own uid, pid namespace, /tmp and /dev/shm, no capabilities; the host's files read-only"
_STANDARD = "a root of its own: read-only /usr, private /tmp, /dev/shm, /proc, ipc and uts"
_STRICT = "standard, with the kernel's own information masked and never the host's network"
_NETWORKS = {
    Network.NONE: "no interface is up",
    Network.LOOPBACK: "one private loopback for all executions of a sandbox",
    Network.HOST: "the host's interfaces and abstract sockets",
}


@dataclass(frozen=True, slots=True)
class MissingFeature:
    """One thing that is missing, and how to get it."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A level or a network on this host: available where it lacks nothing and is allowed.

    barred_by: the admin's setting that keeps requests from it.
    """

    detail: str
    missing: tuple[MissingFeature, ...] = ()
    barred_by: str | None = None

    @property
    def available(self) -> bool:
        """Whether it can be had."""
        return not self.missing and self.barred_by is None


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the admin lets requests have: levels from `minimum` on, and networks."""

    minimum: Isolation = Isolation.NONE
    networks: tuple[Network, ...] = tuple(Network)

    def bars_level(self, level: Isolation) -> str | None:
        """The setting that keeps requests from a level; None: they may have it."""
        levels = list(Isolation)
        if levels.index(level) >= levels.index(self.minimum):
            return None
        return f"SANDBOX_ISOLATION_MINIMUM={self.minimum}"

    def bars_network(self, network: Network) -> str | None:
        """The setting that keeps requests from a network; None: they may have it."""
        if network in self.networks:
            return None
        return f"SANDBOX_NETWORKS={','.join(self.networks)}"


_ALL_ALLOWED = Allowed()


@dataclass(frozen=True, slots=True)
class Findings:
    """What the host was found to do, by doing it: empty where it does."""

    is_root: bool
    kernel_limits: bool
    call_filter: tuple[MissingFeature, ...] = ()
    private_mounts: tuple[MissingFeature, ...] = ()
    root: tuple[MissingFeature, ...] = ()
    network: tuple[MissingFeature, ...] = ()
    place: Place = Place.HOST


@dataclass(frozen=True, slots=True)
class Offers:
    """All levels and networks, and what a request that names none gets.

    levels: `none` is among them only where commands can have no uid of their own.
    """

    levels: Mapping[Isolation, Offer]
    networks: Mapping[Network, Offer]
    default_level: Isolation
    default_network: Network

    def choose(self, level: str | None, network: str | None) -> tuple[Isolation, Network]:
        """What a request gets; None = the default. Raises IsolationUnsupported and AccessDenied,
        never gives less."""
        if level is None:
            chosen = self.default_level
        elif level == AUTO:
            chosen = _best(self.levels)
            _check(self.levels[chosen], "isolation", chosen)
        else:
            chosen = Isolation(level)
            _check(_offered(self.levels, chosen), "isolation", chosen)
        if network is None:
            return chosen, self.default_network
        wanted = Network(network)
        _check(self.networks[wanted], "network", wanted)
        if chosen is Isolation.STRICT and wanted is Network.HOST:
            raise IsolationUnsupported(
                "cannot give network host at isolation strict: it never shares the host's network",
                hint="ask for network loopback or none, or for isolation standard",
                details={"isolation": chosen.value, "network": wanted.value,
                         "lacks": ["strict never shares the host's network"]},
            )  # fmt: skip
        return chosen, wanted

    def check_own_root(self, level: Isolation, field: str) -> None:
        """Raise IsolationUnsupported where `field` asks for a root that the level has not."""
        if level in (Isolation.NONE, Isolation.BASIC):
            missing = [feature.what for feature in self.levels[Isolation.STANDARD].missing]
            raise IsolationUnsupported(
                f"cannot take {field} at isolation {level}: it has no root of its own",
                hint="ask for isolation standard",
                details={"isolation": level.value, "field": field,
                         "lacks": missing or ["a root of its own"]},
            )  # fmt: skip


def offers(found: Findings, setting: str, allowed: Allowed = _ALL_ALLOWED) -> Offers:
    """What this host offers. setting: SANDBOX_ISOLATION.

    Raises ConfigError when the setting names a level that cannot be had or is below what is
    allowed, and when nothing that is allowed can be had.
    """
    own_uids = MissingFeature(
        "root: a uid of its own for each sandbox", remedy(Need.ROOT, found.place)
    )
    basic = () if found.is_root else (own_uids,)
    standard = _once((*basic, *found.call_filter, *found.private_mounts, *found.root))
    strict = [*standard, *found.network]
    if not found.kernel_limits:
        way = remedy(Need.KERNEL_LIMITS, found.place)
        strict.append(MissingFeature("limits held by the kernel: the systemd scheme", way))
    whole: dict[Isolation, tuple[str, tuple[MissingFeature, ...]]] = {
        **({} if found.is_root else {Isolation.NONE: (_NONE, ())}),
        Isolation.BASIC: (_BASIC, basic),
        Isolation.STANDARD: (_STANDARD, standard),
        Isolation.STRICT: (_STRICT, _once(strict)),
    }
    levels = {
        level: Offer(text, missing, allowed.bars_level(level))
        for level, (text, missing) in whole.items()
    }
    networks = {
        mode: Offer(text, () if mode is Network.HOST else found.network, allowed.bars_network(mode))
        for mode, text in _NETWORKS.items()
    }
    level = _best(levels) if setting == AUTO else Isolation(setting)
    try:
        _check(_offered(levels, level), "isolation", level)
    except SandboxdError as exc:
        remedies = _remedies(_offered(levels, level).missing)
        raise ConfigError(
            f"cannot start with SANDBOX_ISOLATION={setting}: {exc.message}",
            hint=remedies or "let the default be one that is allowed",
        ) from exc
    order = (Network.LOOPBACK, Network.HOST, Network.NONE)
    network = next((mode for mode in order if networks[mode].available), None)
    if network is None:
        raise ConfigError(
            "cannot start: no network that SANDBOX_NETWORKS allows can be had on this host",
            hint=_remedies(found.network) or "allow another one",
        )
    return Offers(levels, networks, level, network)


def _best(levels: Mapping[Isolation, Offer]) -> Isolation:
    """Strict is for those who ask for it, or where nothing less is allowed."""
    if levels[Isolation.STANDARD].barred_by is not None:
        return Isolation.STRICT
    if levels[Isolation.STANDARD].available or levels[Isolation.BASIC].barred_by is not None:
        return Isolation.STANDARD
    none = levels.get(Isolation.NONE)
    if levels[Isolation.BASIC].available or none is None or not none.available:
        return Isolation.BASIC
    return Isolation.NONE


def _offered(levels: Mapping[Isolation, Offer], level: Isolation) -> Offer:
    """Commands of a daemon of root's always have a uid of their own."""
    needless = MissingFeature("a daemon without root", "ask for isolation basic")
    return levels[level] if level in levels else Offer(_NONE, (needless,))


def _once(missing: Sequence[MissingFeature]) -> tuple[MissingFeature, ...]:
    return tuple(dict.fromkeys(missing))


def _remedies(missing: Sequence[MissingFeature]) -> str:
    return "; ".join(dict.fromkeys(feature.remedy for feature in missing))


def _check(offer: Offer, kind: str, name: str) -> None:
    if offer.available:
        return
    if offer.barred_by is not None:
        raise AccessDenied(
            f"cannot give {kind} {name}: this server does not allow it ({offer.barred_by})",
            hint="ask for another one, or an admin to allow it",
            details={kind: name, "barred_by": offer.barred_by},
        )
    missing = [feature.what for feature in offer.missing]
    raise IsolationUnsupported(
        f"cannot give {kind} {name}: this host lacks {'; '.join(missing)}",
        hint=_remedies(offer.missing),
        details={kind: name, "lacks": missing},
    )
