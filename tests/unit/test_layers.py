# SPDX-License-Identifier: Apache-2.0
"""Who may import whom (docs/architecture.md): the tables below against every module's imports."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "sandboxd"


class Layer(NamedTuple):
    """Modules (a package stands for all below it), and the layers they import beside their own."""

    modules: tuple[str, ...]
    may_import: tuple[str, ...]


DOORS = (
    "systemd",
    "cgroup",
    "spawn",
    "isolation",
    "supervisor",
    "workspace",
    "store",
    "past",
    "keys",
    "journal",
)

# Each door is a layer of its own, since no door may look through another.
LAYERS = {
    "values": Layer(
        (
            "errors",
            "quantity",
            "names",
            "model",
            "evidence",
            "logs",
            "entries",
            "pidfd",
            "osutil",
            "readiness",
            "sums",
            "tables",
            "turns",
        ),
        (),
    ),
    "decisions": Layer(
        ("policy", "levels", "remedies", "binds", "outcome", "ports", "migrations"), ("values",)
    ),
    "engine": Layer(("engine",), ("values", "decisions")),
    # What the builder does as well.
    "removal": Layer(("workspace.removal", "workspace.subvolumes"), ("values",)),
    **{door: Layer((door,), ("values", "decisions")) for door in DOORS},
    "workspace": Layer(("workspace",), ("values", "decisions", "removal")),
    # The shim holds, limits and judges its command by itself.
    "spawn": Layer(("spawn",), ("values", "decisions", "cgroup", "isolation", "removal")),
    "schemes": Layer(("schemes",), ("values", "decisions", *DOORS)),
    "wire": Layer(("wire",), ("values", "decisions")),
    "config": Layer(("config",), ("values", "decisions", "wire")),
    "api": Layer(("api",), ("values", "decisions", "engine", "wire")),
    "client": Layer(("client",), ("values",)),
    "units": Layer(("units",), ("values",)),
    # The CLI can do nothing that the API does not offer, but for writing files that need no daemon.
    "ctl": Layer(("ctl",), ("values", "client", "units")),
}
# Imports all and is imported by none but the program that starts it.
WIRING = "daemon"

# Distributions, and the only places that may import them.
THIRD_PARTY = {
    "aiohttp": ("api", "daemon"),
    "dbus_fast": ("systemd",),
    "jinja2": ("ctl.report", "units"),
    "prometheus_client": ("api",),
    # Records on disk are an edge, too.
    "pydantic": ("api", "config", "store", "wire"),
    "pydantic_core": ("api", "config", "wire"),
    "pystemd": ("systemd",),
    "rich": ("ctl.pretty",),
}

# The engine is told the time and asks the world through ports; of os it has names of paths only.
STDLIB_NOT_FOR_ENGINE = {"pathlib", "shutil", "signal", "socket", "subprocess", "time"}
NOT_FOR_ENGINE = re.compile(
    r"open|(datetime\.)?datetime\.(now|today|utcnow)|"
    r"os\.(?!path$|path\.(join|normpath|basename|dirname|isabs)$|fspath$).*"
)

# Every execution pays for what the spawner and the shim import.
LEAN = ("spawn.spawner", "spawn.shim")
STDLIB_FOR_LEAN = {
    *("collections", "contextlib", "ctypes", "dataclasses", "enum", "errno", "fcntl"),
    *(
        "fnmatch",
        "functools",
        "gc",
        "json",
        "math",
        "os",
        "re",
        "resource",
        "select",
        "signal",
        "socket",
        "stat",
        "struct",
    ),
    *("sys", "time", "typing"),
}

# Modules that start a program in milliseconds as long as none of the names gets loaded.
LIGHT = {
    "spawn.spawner": {"asyncio", "dbus_fast", "logging", "pydantic", "subprocess", "threading"},
    "supervisor.server": {"asyncio", "dbus_fast", "logging", "pydantic", "subprocess", "threading"},
    "client.sandbox": {"asyncio", "email", "http", "pydantic", "ssl", "subprocess"},
    "ctl.main": {
        *("aiohttp", "asyncio", "dataclasses", "datetime", "dbus_fast", "email", "http", "jinja2"),
        *("pydantic", "rich", "shlex", "signal", "ssl", "urllib"),
    },
}


def modules() -> dict[str, Path]:
    """Return name below `sandboxd` -> file, for all modules; a package is its `__init__`."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(module: str) -> Iterator[str]:
    """Yield full names of what a module imports, wherever in it the statement stands."""
    path = MODULES[module]
    package = [PACKAGE, *module.split(".")] if module else [PACKAGE]
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                base = [*package[: len(package) - node.level + 1], *base]
            origin = ".".join(base)
            for alias in node.names:
                full = f"{origin}.{alias.name}"
                yield full if full.removeprefix(f"{PACKAGE}.") in MODULES else origin


def own_imports(module: str) -> set[str]:
    """Return names below `sandboxd` of the modules of ours that `module` imports."""
    prefix = f"{PACKAGE}."
    return {name.removeprefix(prefix) for name in imports(module) if name.startswith(prefix)}


def outside_imports(module: str) -> set[str]:
    """Return the top-level names of all else that `module` imports."""
    return {name.partition(".")[0] for name in imports(module)} - {PACKAGE, "__future__"}


def is_below(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def layer_of(module: str) -> str | None:
    if is_below(module, (WIRING, "__main__")):
        return WIRING
    return next((name for name, row in LAYERS.items() if is_below(module, row.modules)), None)


def closure(*start: str) -> set[str]:
    """Return all modules of ours that loading `start` loads."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += own_imports(module)
    return seen


@pytest.mark.parametrize("module", [name for name in MODULES if name])
def test_imports_only_from_its_layers(module: str) -> None:
    layer = layer_of(module)
    assert layer, f"{module} has no row in LAYERS"
    if layer == WIRING:
        return
    allowed = {layer, *LAYERS[layer].may_import}
    strays = {name for name in own_imports(module) if layer_of(name) not in allowed}
    assert not strays, f"{module} ({layer}) may not import {sorted(strays)}"


@pytest.mark.parametrize("module", MODULES)
def test_third_party_is_imported_only_in_its_place(module: str) -> None:
    outside = outside_imports(module) - sys.stdlib_module_names
    strays = {name for name in outside if not is_below(module, THIRD_PARTY.get(name, ()))}
    assert not strays, f"{module or PACKAGE} may not import {sorted(strays)}"


@pytest.mark.parametrize("module", [name for name in MODULES if layer_of(name) == "engine"])
def test_engine_touches_nothing_itself(module: str) -> None:
    assert not outside_imports(module) & STDLIB_NOT_FOR_ENGINE
    nodes = ast.walk(ast.parse(MODULES[module].read_text()))
    names = {ast.unparse(node) for node in nodes if isinstance(node, ast.Name | ast.Attribute)}
    assert not {name for name in names if NOT_FOR_ENGINE.fullmatch(name)}


@pytest.mark.parametrize("module", sorted(closure(*LEAN)))
def test_spawner_and_shim_import_little(module: str) -> None:
    assert layer_of(module) in {"values", "cgroup", "isolation", "removal", "spawn"}
    assert outside_imports(module) <= STDLIB_FOR_LEAN


@pytest.mark.parametrize(("module", "heavy"), LIGHT.items())
def test_light_program_loads_nothing_heavy(module: str, heavy: set[str]) -> None:
    show = (
        "import json, sys; sys.path[:0] = sys.argv[1:];"
        f"import {PACKAGE}.{module};"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", show, str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not heavy & set(json.loads(done.stdout))


def test_sees_every_way_to_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "jobs.py"
    source.write_text(
        "from __future__ import annotations\n"
        "import os.path, sandboxd.errors\n"
        "from sandboxd import model\n"
        "from . import bus\n"
        "from ..quantity import format_bytes\n"
        "def late():\n    from dbus_fast.aio import MessageBus\n"
    )
    monkeypatch.setitem(MODULES, "systemd.jobs", source)
    monkeypatch.setitem(MODULES, "systemd.bus", source)
    assert own_imports("systemd.jobs") == {"errors", "model", "systemd.bus", "quantity"}
    assert outside_imports("systemd.jobs") == {"os", "dbus_fast"}
