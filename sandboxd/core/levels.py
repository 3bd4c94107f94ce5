# SPDX-License-Identifier: Apache-2.0
"""Isolation levels and networks: the host's offers, the admin's bounds, a request's choice.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandboxd.core.model import Isolation, Network
from sandboxd.core.remedies import Environment, Need, remedy
from sandboxd.errors import AccessDenied, ConfigError, IsolationUnsupported, SandboxdError

AUTO = "auto"
# The home's path inside a sandbox with a root.
HOME_INSIDE = "/home/sandbox"
# Both paths show one private directory, where private mounts are possible.
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
    """A feature that this host misses, and the remedy."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A level or a network on this host.

    lacks: features that the host misses. barred_by: the admin's setting that forbids the choice.
    """

    detail: str
    lacks: tuple[MissingFeature, ...] = ()
    barred_by: str | None = None

    @property
    def available(self) -> bool:
        """Whether requests can get the level or network."""
        return not self.lacks and self.barred_by is None


@dataclass(frozen=True, slots=True)
class Allowed:
    """The admin's bounds for requests: levels from `minimum` up, and networks."""

    minimum: Isolation = Isolation.NONE
    networks: tuple[Network, ...] = tuple(Network)

    def bars_level(self, level: Isolation) -> str | None:
        """Return the setting that forbids a level; None if allowed."""
        levels = list(Isolation)
        if levels.index(level) >= levels.index(self.minimum):
            return None
        return f"SANDBOX_ISOLATION_MINIMUM={self.minimum}"

    def bars_network(self, network: Network) -> str | None:
        """Return the setting that forbids a network; None if allowed."""
        if network in self.networks:
            return None
        return f"SANDBOX_NETWORKS={','.join(self.networks)}"


_ALL_ALLOWED = Allowed()


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of trying the host's features; an empty tuple means available."""

    is_root: bool
    kernel_limits: bool
    call_filter: tuple[MissingFeature, ...] = ()
    private_mounts: tuple[MissingFeature, ...] = ()
    root: tuple[MissingFeature, ...] = ()
    network: tuple[MissingFeature, ...] = ()
    place: Environment = Environment.HOST


@dataclass(frozen=True, slots=True)
class Offers:
    """All levels and networks, and the defaults of a request.

    levels: `none` is present only where commands cannot have a separate uid.
    """

    levels: Mapping[Isolation, Offer]
    networks: Mapping[Network, Offer]
    default_level: Isolation
    default_network: Network

    def choose(self, level: str | None, network: str | None) -> tuple[Isolation, Network]:
        """Return level and network (None = default). Raises IsolationUnsupported, AccessDenied."""
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
        """Raise IsolationUnsupported if `field` needs a root and the level has none."""
        if not level.has_own_root:
            missing = [feature.what for feature in self.levels[Isolation.STANDARD].lacks]
            raise IsolationUnsupported(
                f"cannot take {field} at isolation {level}: it has no root of its own",
                hint="ask for isolation standard",
                details={"isolation": level.value, "field": field,
                         "lacks": missing or ["a root of its own"]},
            )  # fmt: skip


def offers(found: Findings, setting: str, allowed: Allowed = _ALL_ALLOWED) -> Offers:
    """Return the offers of this host. setting: SANDBOX_ISOLATION.

    Raises ConfigError for an unavailable or forbidden level in the setting, and when no allowed
    level or network is available.
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
        remedies = _remedies(_offered(levels, level).lacks)
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
    """Return the best default level; strict only where the lower levels are forbidden."""
    if levels[Isolation.STANDARD].barred_by is not None:
        return Isolation.STRICT
    if levels[Isolation.STANDARD].available or levels[Isolation.BASIC].barred_by is not None:
        return Isolation.STANDARD
    none = levels.get(Isolation.NONE)
    if levels[Isolation.BASIC].available or none is None or not none.available:
        return Isolation.BASIC
    return Isolation.NONE


def _offered(levels: Mapping[Isolation, Offer], level: Isolation) -> Offer:
    """Return a level's offer; `none` is not offered where each sandbox has a separate uid."""
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
    missing = [feature.what for feature in offer.lacks]
    raise IsolationUnsupported(
        f"cannot give {kind} {name}: this host lacks {'; '.join(missing)}",
        hint=_remedies(offer.lacks),
        details={kind: name, "lacks": missing},
    )
