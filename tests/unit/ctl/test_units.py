# SPDX-License-Identifier: Apache-2.0
"""The rendered units: what each says, and that they fit each other and the daemon."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sandboxd.core.names import UnitNames
from sandboxd.core.policy import DEFAULT_RESERVE_BYTES
from sandboxd.core.quantity import parse_bytes
from sandboxd.ctl import units
from sandboxd.daemon import config
from sandboxd.errors import ConfigError
from sandboxd.launch.spawner import spawner_argv
from sandboxd.launch.supervisor import supervisor_argv
from sandboxd.systemd.units import slice_path

ROOT = Path(__file__).resolve().parents[3]
PACKAGED = units.Layout(
    ("/usr/bin/sandboxd",), "/usr/bin/python3", "/usr/lib/python3/dist-packages"
)
SERVICES = ("sandboxd.service", "sandboxd-spawner.service", "sandboxd-supervisor.service")
NAMES = UnitNames.of_instance("abcdefghijkl", is_service=True)


class Unit(dict[str, dict[str, list[str]]]):
    """Section -> setting -> its values in order."""

    def __init__(self, text: str) -> None:
        section: dict[str, list[str]] = {}
        for line in text.splitlines():
            if line.startswith("["):
                section = self.setdefault(line.strip("[]"), {})
            elif line and line[0] not in "#;":
                name, _, value = line.partition("=")
                section.setdefault(name, []).append(value)

    def one(self, section: str, name: str) -> str:
        (value,) = self[section][name]
        return value


@pytest.fixture(scope="module")
def rendered() -> dict[str, Unit]:
    return {name: Unit(text) for name, text in units.render(PACKAGED).items()}


def test_every_file_is_there() -> None:
    assert set(units.render(PACKAGED)) == {
        *SERVICES, "sandboxd.socket", "sandboxd.slice", "sandboxd_daemon.slice",
        "sandboxd.sysusers", "sandboxd.tmpfiles",
    }  # fmt: skip


def test_units_have_the_names_by_which_the_daemon_asks_for_them(rendered: dict[str, Unit]) -> None:
    for name in (NAMES.parent_slice, NAMES.spawner_service, NAMES.supervisor_service):
        assert name in rendered


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_is_in_the_slice_that_it_limits(rendered: dict[str, Unit], name: str) -> None:
    assert slice_path(rendered[name].one("Service", "Slice")) == "sandboxd_daemon.slice"


def test_the_slice_s_protection_covers_what_its_services_claim(rendered: dict[str, Unit]) -> None:
    claimed = [parse_bytes(rendered[name].one("Service", "MemoryMin")) for name in SERVICES]
    whole = parse_bytes(rendered["sandboxd_daemon.slice"].one("Slice", "MemoryMin"))
    assert 0 < sum(claimed) <= whole == DEFAULT_RESERVE_BYTES


def test_helpers_are_started_as_the_daemon_starts_them(rendered: dict[str, Unit]) -> None:
    library = str(ROOT)
    here = units.render(units.Layout(("/bin/true",), sys.executable, library))
    for name, argv in (
        (NAMES.spawner_service, spawner_argv("/run/sandboxd/spawner.sock", idle_seconds=None)),
        (NAMES.supervisor_service, supervisor_argv(config.DEFAULT_RUNTIME_DIRECTORY)),
    ):
        assert Unit(here[name]).one("Service", "ExecStart") == " ".join(argv)


def test_directories_are_the_service_s(rendered: dict[str, Unit]) -> None:
    service = rendered["sandboxd.service"]
    assert f"/var/lib/{service.one('Service', 'StateDirectory')}" == config.DEFAULT_STATE_DIRECTORY
    runtime = config.DEFAULT_RUNTIME_DIRECTORY
    for name in SERVICES:
        section = rendered[name]["Service"]
        assert section["RuntimeDirectory"][0].split()[0] == runtime.removeprefix("/run/")
        assert section["RuntimeDirectoryPreserve"] == ["yes"]
    assert rendered["sandboxd.socket"].one("Socket", "ListenStream") == config.DEFAULT_SOCKET


def test_what_a_daemon_must_not_lose_at_a_restart(rendered: dict[str, Unit]) -> None:
    for name in SERVICES:
        assert rendered[name].one("Service", "KillMode") == "process"
        assert rendered[name].one("Service", "OOMPolicy") == "continue"
        assert "PartOf" not in rendered[name]["Unit"]
    assert "Also" not in rendered["sandboxd.service"]["Install"]


def test_commands_inherit_no_wall_of_the_spawner(rendered: dict[str, Unit]) -> None:
    started = {
        *("Type", "NotifyAccess", "ExecStart", "Restart", "KillMode", "KillSignal"),
        "SuccessExitStatus",
    }
    place = {
        *("Slice", "MemoryMin", "OOMScoreAdjust", "OOMPolicy", "ManagedOOMPreference", "TasksMax"),
        *("RuntimeDirectory", "RuntimeDirectoryPreserve"),
    }
    # Commands have no capabilities, whatever the spawner has.
    allowed = {*started, *place, "CapabilityBoundingSet"}
    assert set(rendered["sandboxd-spawner.service"]["Service"]) <= allowed


def test_paths_and_group_are_put_in() -> None:
    layout = units.Layout(
        ("/opt/s/bin/sandboxd",), "/opt/s/bin/python3.12", "/opt/s/lib", "/etc/other.toml", "boxes"
    )
    files = units.render(layout)
    service = Unit(files["sandboxd.service"])
    assert service.one("Service", "ExecStart") == "/opt/s/bin/sandboxd --config /etc/other.toml"
    spawner = Unit(files["sandboxd-spawner.service"]).one("Service", "ExecStart")
    assert spawner.startswith(
        "/opt/s/bin/python3.12 -I -S /opt/s/lib/sandboxd/spawner/__main__.py "
    )
    assert Unit(files["sandboxd.socket"]).one("Socket", "SocketGroup") == "boxes"
    assert "\ng boxes -\n" in files["sandboxd.sysusers"]
    assert not any("{{" in text or "{%" in text for text in files.values())


def test_the_default_settings_file_may_be_missing(rendered: dict[str, Unit]) -> None:
    assert units.DEFAULT_CONFIG == config.DEFAULT_FILE
    assert rendered["sandboxd.service"].one("Service", "ExecStart") == "/usr/bin/sandboxd"


@pytest.mark.parametrize(
    "change",
    [
        {"library": "/usr/lib dir"},
        {"library": "usr/lib"},
        {"library": "/usr/../lib"},
        {"python": "/usr/bin/python3\nUser=nobody"},
        {"python": "/usr/bin/py%thon"},
        {"daemon": ("/usr/bin/$HOME",)},
        {"config": "/etc/a\\b"},
        {"config": "/etc/trailing/"},
        {"group": "a b"},
        {"group": "sandboxd\nx"},
        {"group": ""},
    ],
)
def test_what_a_unit_file_cannot_hold_is_refused(change: dict[str, Any]) -> None:
    values: dict[str, Any] = {
        "daemon": PACKAGED.daemon, "python": PACKAGED.python, "library": PACKAGED.library,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="cannot write units for"):
        units.render(units.Layout(**{**values, **change}))


def test_written_to_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    units.configure(parser)
    output = tmp_path / "new" / "units"
    assert units.execute(parser.parse_args(["--output", str(output), "--prefix", "/usr"])) == 0
    assert {path.name: path.read_text() for path in output.iterdir()} == units.render(PACKAGED)
    assert len(capsys.readouterr().out.splitlines()) == len(list(output.iterdir()))


def test_without_a_prefix_they_start_what_runs_here() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandboxd.ctl.units"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    starts = [line for line in done.stdout.splitlines() if line.startswith("ExecStart=")]
    assert f"ExecStart={sys.executable} -I {ROOT}/sandboxd/__main__.py" in starts


def test_the_program_named_there_is_the_daemon() -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "sandboxd/__main__.py"), "--version"],
        cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("sandboxd ")


def test_an_installed_sandboxd_has_the_templates_beside_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"units": f"sandboxd/{units._PLACES[0]}"}
