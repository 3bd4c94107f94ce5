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

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "sandboxd"


# Folder or module below sandboxd/ -> what it imports beside its own; the longest name counts.
LAYERS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "core": ("errors",),
    # The operating system, and what processes tell each other: the spawner and the shim load them.
    "osutil": (),
    "protocol": ("osutil",),
    # Decisions, and what they ask of the world.
    "engine": ("errors", "core", "engine.ports"),
    "engine.ports": ("core",),
    # Doors: one outside thing each, and none looks through another.
    "systemd": ("errors", "core", "osutil"),
    "cgroup": ("core", "osutil"),
    "isolation": ("errors", "core", "osutil", "protocol"),
    "records": ("errors", "core", "engine.ports", "osutil"),
    "workspace": ("errors", "core", "engine.ports", "osutil", "protocol", "workspace.removal"),
    # What the builder does as well.
    "workspace.removal": ("osutil", "workspace.subvolumes"),
    "workspace.subvolumes": (),
    # Processes beside the daemon, and the daemon's side of them. The shim holds, limits and judges
    # its command by itself.
    "launch": ("errors", "core", "engine.ports", "osutil", "protocol", "cgroup", "isolation"),
    "spawner": ("osutil", "protocol", "shim", "isolation", "workspace.removal"),
    "shim": ("osutil", "protocol", "cgroup", "isolation"),
    "supervisor": ("osutil", "protocol"),
    "schemes": (
        *("errors", "core", "engine.ports", "osutil", "protocol"),
        *("systemd", "cgroup", "isolation", "launch"),
    ),
    # Edges.
    "wire": ("errors", "core"),
    "api": ("errors", "core", "engine", "engine.ports", "osutil", "wire"),
    "client": ("errors", "core", "osutil"),
    # The CLI can do nothing that the API does not offer, but for writing files that need no daemon.
    "ctl": ("errors", "core", "client", "osutil"),
    "daemon.config": ("errors", "core"),
    "daemon.journal": ("core",),
}
# Imports all and is imported by none but the program that starts it.
WIRING = "daemon.main"

# Distributions, and the only places that may import them.
THIRD_PARTY = {
    "aiohttp": ("api", "daemon.main"),
    "dbus_fast": ("systemd",),
    "jinja2": ("ctl.report", "ctl.units"),
    "prometheus_client": ("api",),
    # Records on disk are an edge, too.
    "pydantic": ("api", "daemon.config", "records.store", "wire"),
    "pydantic_core": ("api", "daemon.config", "wire"),
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
LEAN = ("spawner.spawner", "shim.shim")
LEAN_LAYERS = {
    *("osutil", "protocol", "spawner", "shim", "cgroup", "isolation"),
    *("workspace.removal", "workspace.subvolumes"),
}
STDLIB_FOR_LEAN = {
    *("collections", "contextlib", "ctypes", "dataclasses", "enum", "errno", "fcntl"),
    *(
        "fnmatch",
        "functools",
        "gc",
        "json",
        "math",
        "os",
        "pwd",
        "re",
        "resource",
        "select",
        "signal",
        "socket",
        "stat",
        "struct",
    ),
    *("sys", "time", "types", "typing"),
}

# Modules that start a program in milliseconds as long as none of the names gets loaded.
LIGHT = {
    "spawner.spawner": {"asyncio", "dbus_fast", "logging", "pydantic", "subprocess", "threading"},
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
    if module in (WIRING, "__main__", "daemon"):
        return WIRING
    return max((name for name in LAYERS if is_below(module, (name,))), key=len, default=None)


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
    allowed = {layer, *LAYERS[layer]}
    strays = {name for name in own_imports(module) if layer_of(name) not in allowed}
    assert not strays, f"{module} ({layer}) may not import {sorted(strays)}"


@pytest.mark.parametrize("layer", LAYERS)
def test_every_allowance_is_used(layer: str) -> None:
    used = {
        layer_of(name)
        for module in MODULES
        if module and layer_of(module) == layer
        for name in own_imports(module)
    }
    unused = set(LAYERS[layer]) - used
    assert not unused, f"{layer} need not import {sorted(unused)}"


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
    assert layer_of(module) in LEAN_LAYERS
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
        "from sandboxd.core import model\n"
        "from . import bus\n"
        "from ..core.quantity import format_bytes\n"
        "def late():\n    from dbus_fast.aio import MessageBus\n"
    )
    monkeypatch.setitem(MODULES, "systemd.jobs", source)
    monkeypatch.setitem(MODULES, "systemd.bus", source)
    assert own_imports("systemd.jobs") == {"errors", "core.model", "systemd.bus", "core.quantity"}
    assert outside_imports("systemd.jobs") == {"os", "dbus_fast"}
