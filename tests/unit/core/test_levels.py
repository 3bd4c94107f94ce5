# SPDX-License-Identifier: Apache-2.0
"""What a host offers, and which level and network a request gets: never less than it asked for."""

from __future__ import annotations

import pytest

from sandboxd.core.levels import Allowed, Findings, MissingFeature, Offers, offers
from sandboxd.core.model import Isolation, Network
from sandboxd.core.remedies import Environment, Need, remedy
from sandboxd.errors import AccessDenied, ConfigError, IsolationUnsupported

NO_BWRAP = (MissingFeature("bubblewrap", "install bubblewrap"),)
NO_NETWORK = (MissingFeature("network namespaces", "run as root"),)
STANDARD, BASIC, STRICT = Isolation.STANDARD, Isolation.BASIC, Isolation.STRICT


def made(
    setting: str = "auto",
    *,
    limits: bool = True,
    root: tuple[MissingFeature, ...] = (),
    network: tuple[MissingFeature, ...] = (),
    minimum: Isolation = Isolation.BASIC,
    networks: tuple[Network, ...] = tuple(Network),
) -> Offers:
    found = Findings(True, limits, root=root, network=network)
    return offers(found, setting, Allowed(minimum, networks))


@pytest.mark.parametrize(
    ("host", "level", "network"),
    [(made(), STANDARD, Network.LOOPBACK),
     (made(limits=False), STANDARD, Network.LOOPBACK),
     (made(root=NO_BWRAP), BASIC, Network.LOOPBACK),
     (made(network=NO_NETWORK), STANDARD, Network.HOST),
     (made("basic"), BASIC, Network.LOOPBACK),
     (made("strict"), STRICT, Network.LOOPBACK)],
)  # fmt: skip
def test_the_default_is_the_best_but_strict_only_where_set(
    host: Offers, level: Isolation, network: Network
) -> None:
    assert host.choose(None, None) == (level, network)


def test_auto_in_a_request_takes_the_best_whatever_the_setting() -> None:
    assert made("basic").choose("auto", None)[0] is STANDARD
    assert made("strict").choose("auto", None)[0] is STANDARD
    assert made(root=NO_BWRAP).choose("auto", None)[0] is BASIC


@pytest.mark.parametrize(
    ("host", "level", "network", "lack"),
    [(made(root=NO_BWRAP), "standard", None, "bubblewrap"),
     (made(root=NO_BWRAP), "strict", None, "bubblewrap"),
     (made(limits=False), "strict", None, "limits held by the kernel: the systemd scheme"),
     (made(network=NO_NETWORK), "strict", None, "network namespaces"),
     (made(network=NO_NETWORK), None, "loopback", "network namespaces"),
     (made(network=NO_NETWORK), "basic", "none", "network namespaces"),
     (made(), "strict", "host", "strict never shares the host's network")],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_with_what_is_missing(
    host: Offers, level: str | None, network: str | None, lack: str
) -> None:
    with pytest.raises(IsolationUnsupported) as caught:
        host.choose(level, network)
    assert lack in caught.value.details["lacks"]
    assert caught.value.hint


@pytest.mark.parametrize("setting", ["standard", "strict"])
def test_a_setting_that_cannot_be_had_refuses_to_start(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"SANDBOX_ISOLATION={setting}.*bubblewrap") as caught:
        made(setting, root=NO_BWRAP)
    assert caught.value.hint == "install bubblewrap"


def test_a_lack_is_named_once() -> None:
    unreachable = (MissingFeature("root", "run as root"),)
    host = offers(Findings(False, True, root=unreachable, network=unreachable), "auto")
    assert host.levels[BASIC].lacks != unreachable
    assert set(host.levels[STRICT].lacks) == {*unreachable, *host.levels[BASIC].lacks}


def test_without_root_there_is_no_level_but_none() -> None:
    host = offers(Findings(False, False), "auto")
    assert host.choose(None, None)[0] is host.choose("auto", None)[0] is Isolation.NONE
    assert host.choose("none", None)[0] is Isolation.NONE
    for level in ("basic", "standard", "strict"):
        with pytest.raises(IsolationUnsupported) as caught:
            host.choose(level, None)
        assert "root: a uid of its own for each sandbox" in caught.value.details["lacks"]
        with pytest.raises(ConfigError, match=f"SANDBOX_ISOLATION={level}"):
            offers(Findings(False, False), level)
    with pytest.raises(IsolationUnsupported, match="binds at isolation none"):
        host.check_own_root(Isolation.NONE, "binds")


def test_a_remedy_is_named_once() -> None:
    place = Environment.DOCKER
    way = remedy(Need.ROOT, place)
    mounts = (MissingFeature("root: mounts", way),)
    found = Findings(False, True, private_mounts=mounts, network=mounts, place=place)
    with pytest.raises(IsolationUnsupported) as caught:
        offers(found, "auto").choose("standard", None)
    assert "root: mounts" in caught.value.details["lacks"]
    assert caught.value.hint == way
    with pytest.raises(ConfigError) as refused:
        offers(found, "standard")
    assert refused.value.hint == way


def test_root_never_gives_less_than_a_uid_of_its_own() -> None:
    assert Isolation.NONE not in made().levels
    with pytest.raises(IsolationUnsupported) as caught:
        made().choose("none", None)
    assert caught.value.hint == "ask for isolation basic"
    with pytest.raises(ConfigError, match="SANDBOX_ISOLATION=none"):
        made("none")


def test_a_root_s_parts_need_a_level_that_has_one() -> None:
    made().check_own_root(STANDARD, "rootfs")
    with pytest.raises(IsolationUnsupported) as caught:
        made(root=NO_BWRAP).check_own_root(BASIC, "rootfs")
    assert caught.value.details["lacks"] == ["bubblewrap"]


@pytest.mark.parametrize(
    ("host", "level", "network", "barred_by"),
    [(made(minimum=STANDARD), "basic", None, "SANDBOX_ISOLATION_MINIMUM=standard"),
     (made(minimum=STRICT), "standard", None, "SANDBOX_ISOLATION_MINIMUM=strict"),
     # That the host lacks it, too, is not what keeps a request from it.
     (made(minimum=STANDARD, networks=(Network.NONE, Network.LOOPBACK)), None, "host",
      "SANDBOX_NETWORKS=none,loopback"),
     (made(networks=(Network.HOST,), network=NO_NETWORK), None, "none", "SANDBOX_NETWORKS=host")],
)  # fmt: skip
def test_what_the_admin_does_not_allow_is_refused(
    host: Offers, level: str | None, network: str | None, barred_by: str
) -> None:
    with pytest.raises(AccessDenied) as raised:
        host.choose(level, network)
    assert raised.value.details["barred_by"] == barred_by
    offers_ = host.networks[Network(network)] if network else host.levels[Isolation(level or "")]
    assert (offers_.available, offers_.barred_by) == (False, barred_by)


@pytest.mark.parametrize(
    ("host", "level", "network"),
    [(made(minimum=STRICT), STRICT, Network.LOOPBACK),
     (made(minimum=STANDARD), STANDARD, Network.LOOPBACK),
     (made(networks=(Network.NONE,)), STANDARD, Network.NONE),
     (made(networks=(Network.NONE, Network.HOST)), STANDARD, Network.HOST)],
)  # fmt: skip
def test_the_default_is_one_that_is_allowed(
    host: Offers, level: Isolation, network: Network
) -> None:
    assert host.choose(None, None) == (level, network)
    assert host.choose("auto", None) == (level, network)


def test_less_than_the_admin_allows_is_no_default_and_no_start() -> None:
    with pytest.raises(ConfigError, match="SANDBOX_ISOLATION_MINIMUM=standard"):
        made("basic", minimum=STANDARD)
    with pytest.raises(ConfigError, match="bubblewrap"):
        made(minimum=STANDARD, root=NO_BWRAP)
    with pytest.raises(ConfigError, match="systemd scheme"):
        made(minimum=STRICT, limits=False)
    with pytest.raises(ConfigError, match="SANDBOX_NETWORKS"):
        made(networks=(Network.LOOPBACK,), network=NO_NETWORK)


def test_a_floor_above_none_is_kept_without_root() -> None:
    with pytest.raises(ConfigError, match=r"SANDBOX_ISOLATION=auto.*root: a uid"):
        offers(Findings(False, False), "auto", Allowed(minimum=BASIC))
