# SPDX-License-Identifier: Apache-2.0
"""`./dev` and its set-up, without installing anything."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import bootstrap
import deb
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = {
    "run": PROJECT["dependencies"],
    "test": PROJECT["optional-dependencies"]["test"],
    "lint": PROJECT["optional-dependencies"]["lint"],
}


@pytest.fixture(scope="module")
def dev() -> Any:
    loader = SourceFileLoader("dev", str(ROOT / "dev"))
    spec = importlib.util.spec_from_loader("dev", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make bootstrap see a checkout of its own, with one line in each requirements file."""
    (tmp_path / "packaging").mkdir()
    for name in bootstrap.SETS:
        (tmp_path / f"packaging/requirements-{name}.txt").write_text(f"{name}==1\n")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "checkout_is_writable", lambda: True)
    monkeypatch.setattr(bootstrap, "require_venv_module", lambda: None)
    return tmp_path


def pins(name: str) -> dict[str, list[str]]:
    """Return distribution -> hashes, of one requirements file."""
    text = (ROOT / f"packaging/requirements-{name}.txt").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {words[0].partition("==")[0]: words[1:] for words in lines}


class TestVersions:
    @pytest.mark.parametrize("name", ["run", "test"])
    def test_bounds_are_those_of_pyproject(self, name: str) -> None:
        known = {"run": bootstrap.RUN_LIBRARIES, "test": bootstrap.TEST_LIBRARIES}[name]
        assert {f"{lib.name}>={lib.oldest[0]}.{lib.oldest[1]}" for lib in known} == {
            *REQUIRED[name]
        }

    @pytest.mark.parametrize("name", bootstrap.SETS)
    def test_everything_required_is_pinned_in_its_file(self, name: str) -> None:
        assert {re.split("[><=]", line)[0] for line in REQUIRED[name]} <= pins(name).keys()

    @pytest.mark.parametrize("name", bootstrap.SETS)
    def test_every_pin_has_hashes(self, name: str) -> None:
        for hashes in pins(name).values():
            assert hashes
            assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", word) for word in hashes)

    def test_files_add_to_each_other(self) -> None:
        names = [distribution for name in bootstrap.SETS for distribution in pins(name)]
        assert sorted(names) == sorted(set(names))

    @pytest.mark.parametrize(
        ("version", "is_new_enough"),
        [("2.43.9", False), ("2.44", True), ("2.44.0rc1", True), ("3", True), (None, False)],
    )
    def test_too_old(
        self, version: str | None, is_new_enough: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def installed(name: str) -> str:
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(importlib.metadata, "version", installed)
        library = bootstrap.Library("dbus-fast", (2, 44), "python3-dbus-fast")
        assert bootstrap.too_old((library,)) == ([] if is_new_enough else [library])

    @pytest.mark.parametrize(
        ("release", "number"),
        [
            ({"ID": "debian", "VERSION_ID": "12"}, 12),
            ({"ID": "debian", "VERSION_ID": "13"}, 13),
            ({"ID": "debian", "VERSION_CODENAME": "sid"}, 99),
            ({"ID": "ubuntu", "ID_LIKE": "debian", "VERSION_ID": "24.04"}, 0),
        ],
    )
    def test_debian_release(
        self, release: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
        assert bootstrap.debian_release() == number

    @pytest.mark.parametrize(
        ("release", "is_like"),
        [
            ({"ID": "debian"}, True),
            ({"ID": "ubuntu", "ID_LIKE": "debian", "VERSION_ID": "24.04"}, True),
            ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, True),
            ({"ID": "fedora", "ID_LIKE": "rhel"}, False),
            ({}, False),
        ],
    )
    def test_apt_is_used_on_all_that_are_like_debian(
        self, release: dict[str, str], is_like: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(shutil, "which", lambda program: "/usr/bin/apt-get")
        assert bootstrap.may_install_packages() == is_like


class TestStamps:
    def test_covers_the_files_of_its_set_only(self, checkout: Path) -> None:
        python = Path("/usr/bin/python3")
        before = {name: bootstrap.stamp(name, python) for name in bootstrap.SETS}
        (checkout / "packaging/requirements-test.txt").write_text("test==2\n")
        changed = {name for name in before if bootstrap.stamp(name, python) != before[name]}
        assert changed == {"test", "lint"}

    def test_covers_the_interpreter(self, checkout: Path, tmp_path: Path) -> None:
        link = tmp_path / "python"
        link.symlink_to("python3.11")
        before = bootstrap.stamp("run", link)
        link.unlink()
        link.symlink_to("python3.13")
        assert bootstrap.stamp("run", link) != before

    def test_fills_the_venv_once(self, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        commands: list[list[str]] = []
        monkeypatch.setattr(bootstrap, "checked", commands.append)
        (checkout / ".venv").mkdir()
        for _ in range(2):
            assert bootstrap.venv_python("test") == checkout / ".venv/bin/python"
        make, fill = commands
        assert make[1:4] == ["-m", "venv", "--clear"]
        assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(fill)
        assert [Path(word).name for word in fill if word.endswith(".txt")] == [
            "requirements-run.txt",
            "requirements-test.txt",
        ]
        # A smaller set is there already, a larger one is added to the same venv.
        bootstrap.venv_python("run")
        assert len(commands) == 2
        bootstrap.venv_python("lint")
        assert commands[2][:4] == fill[:4]

    def test_a_damaged_stamp_is_none(self, checkout: Path) -> None:
        (checkout / ".venv").mkdir()
        (checkout / ".venv/dev-stamps.json").write_text('{"run": ')
        assert not bootstrap.holds(checkout / ".venv", "run")

    def test_failed_pip_leaves_no_stamp(
        self, checkout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(command: list[str]) -> None:
            raise bootstrap.SetupError("no network")

        monkeypatch.setattr(bootstrap, "checked", fail)
        with pytest.raises(bootstrap.SetupError, match="no network"):
            bootstrap.venv_python("run")
        assert not bootstrap.read_stamps(checkout / ".venv")

    def test_read_only_checkout_uses_the_cache(
        self,
        checkout: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(bootstrap, "checkout_is_writable", lambda: False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        made = []
        monkeypatch.setattr(bootstrap, "fill_venv", lambda venv, wanted: made.append(venv))
        python = bootstrap.venv_python("run")
        assert python.is_relative_to(tmp_path / "cache/sandboxd")
        assert made == [python.parents[1]]
        assert "not writable" in capsys.readouterr().err
        environment = bootstrap.child_environment()
        assert str(tmp_path / "cache") in environment["PYTEST_ADDOPTS"]
        assert environment["RUFF_CACHE_DIR"].startswith(str(tmp_path / "cache"))


class TestChoice:
    @pytest.mark.parametrize(
        ("has_libraries", "debian", "is_root", "is_debians", "source"),
        [
            (True, 12, False, True, "system"),
            (True, 13, True, True, "system"),
            (False, 13, True, True, "apt"),
            (False, 13, False, True, "venv"),
            (False, 13, True, False, "venv"),
            (False, 12, True, True, "venv"),
            (False, 0, True, False, "venv"),
        ],
    )
    def test_where_libraries_come_from(
        self,
        has_libraries: bool,
        debian: int,
        is_root: bool,
        is_debians: bool,
        source: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        installed: list[str] = []

        def too_old(libraries: tuple[bootstrap.Library, ...]) -> list[bootstrap.Library]:
            return [] if has_libraries or installed else list(libraries)

        def apt_install(packages: list[str]) -> bool:
            installed.extend(packages)
            return True

        monkeypatch.setattr(bootstrap, "too_old", too_old)
        monkeypatch.setattr(bootstrap, "apt_install", apt_install)
        monkeypatch.setattr(bootstrap, "debian_release", lambda: debian)
        monkeypatch.setattr(bootstrap, "find_run_programs", lambda: None)
        monkeypatch.setattr(bootstrap, "may_install_packages", lambda: is_root)
        monkeypatch.setattr(bootstrap, "is_debians_python", lambda: is_debians)
        monkeypatch.setattr(bootstrap, "venv_python", lambda wanted: Path("/venv/python"))
        python = bootstrap.set_up("run")
        assert python == ("/venv/python" if source == "venv" else sys.executable)
        assert ("python3-aiohttp" in installed) == (source == "apt")

    def test_failed_apt_falls_back_to_a_venv(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bootstrap, "too_old", list)
        monkeypatch.setattr(bootstrap, "apt_install", lambda packages: False)
        monkeypatch.setattr(bootstrap, "debian_release", lambda: 13)
        monkeypatch.setattr(bootstrap, "may_install_packages", lambda: True)
        monkeypatch.setattr(bootstrap, "is_debians_python", lambda: True)
        monkeypatch.setattr(bootstrap, "venv_python", lambda wanted: Path("/venv/python"))
        assert bootstrap.set_up("run") == "/venv/python"

    def test_names_the_command_when_venv_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        monkeypatch.setattr(bootstrap, "may_install_packages", lambda: False)
        with pytest.raises(
            bootstrap.SetupError, match="apt-get update && apt-get install python3-venv"
        ):
            bootstrap.require_venv_module()

    def test_a_cache_that_cannot_be_made_is_told_with_the_way_out(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        monkeypatch.setattr(bootstrap, "checkout_is_writable", lambda: False)
        monkeypatch.setattr(bootstrap, "holds", lambda venv, wanted: False)
        monkeypatch.setattr(bootstrap, "require_venv_module", lambda: None)
        with pytest.raises(bootstrap.SetupError, match="set HOME or XDG_CACHE_HOME") as caught:
            bootstrap.venv_python("run")
        assert str(tmp_path / "file") in str(caught.value)

    @pytest.mark.parametrize("is_root", [True, False])
    def test_programs_of_tests_are_installed_or_missed_aloud(
        self, is_root: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        installed: list[str] = []

        def apt_install(packages: list[str]) -> bool:
            installed.extend(packages)
            return True

        monkeypatch.setenv("PATH", "")
        monkeypatch.setattr(bootstrap, "may_install_packages", lambda: is_root)
        monkeypatch.setattr(bootstrap, "apt_install", apt_install)
        bootstrap.find_test_programs()
        packages = {*bootstrap.TEST_PROGRAMS.values()}
        assert {"bubblewrap", "dbus-daemon", "e2fsprogs", "groff-base"} <= packages
        assert sorted(installed) == (sorted(packages) if is_root else [])
        assert ("tmux cannot run" in capsys.readouterr().err) != is_root
        installed.clear()
        bootstrap.find_run_programs()
        assert installed == (["bubblewrap"] if is_root else [])
        assert not capsys.readouterr().err


# What every Debian has: its essential packages and those that apt and Python need.
ESSENTIAL = {
    *("bash", "cp", "dpkg", "du", "ldd", "python3", "sh", "sleep", "yes"),
    *("losetup", "prlimit", "setarch", "setpriv", "umount", "unshare"),
}
# Too large to be installed for a few tests each, which are skipped without them; or no program of a
# host without systemd or another user.
SKIPPED_WITHOUT = {
    "gcc",
    "go",
    "java",
    "javac",
    "node",
    "rustc",
    "sudo",
    "systemctl",
    "systemd-run",
}


CALLS_OF_PROGRAMS = re.compile(
    r"subprocess\.|which$|create_subprocess_exec|^(needs|program|requires_program)$"
)


class TestPrograms:
    def test_what_tests_call_is_installed_first(self) -> None:
        called = {
            program: path
            for folder in ("unit", "contract", "integration", "escapes")
            for path in (ROOT / "tests" / folder).rglob("*.py")
            for program in programs_called(path)
        }
        assert {"mke2fs", "dbus-daemon", "tmux"} <= bootstrap.TEST_PROGRAMS.keys()
        assert {"dbus-daemon", "tmux", "setpriv", "umount"} <= called.keys()
        known = ESSENTIAL | SKIPPED_WITHOUT | bootstrap.TEST_PROGRAMS.keys()
        assert not {name: path for name, path in called.items() if name not in known}

    def test_a_daemons_programs_are_installed_for_tests(self) -> None:
        called = {
            program: path
            for path in (ROOT / "sandboxd/isolation").rglob("*.py")
            for program in re.findall(r'"(mke2fs|e2fsck|bwrap|resize2fs)"', path.read_text())
        }
        # e2fsck is in the package of mke2fs.
        assert called.keys() - {"e2fsck"} <= bootstrap.TEST_PROGRAMS.keys()


def programs_called(path: Path) -> set[str]:
    """Names of programs that stand in a module's calls to start or to look for one."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        callee = ast.unparse(node.func)
        if not CALLS_OF_PROGRAMS.search(callee):
            continue
        for argument in node.args[:1]:
            first = argument
            if isinstance(argument, ast.List | ast.Tuple) and argument.elts:
                first = argument.elts[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.add(first.value.rpartition("/")[2])
    return found - {"dev"}


class TestCommands:
    def test_loads_in_old_pythons(self) -> None:
        ast.parse((ROOT / "dev").read_text(), feature_version=(3, 8))

    def test_becomes_a_newer_python(
        self, dev: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, status in (("python3.13", 127), ("python3.12", 0)):
            (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
        monkeypatch.setattr(sys, "version_info", (3, 9))
        monkeypatch.setattr(sys, "argv", ["dev", "test", "-q"])
        became: list[list[str]] = []
        monkeypatch.setattr(os, "execv", lambda path, argv: became.append([path, *argv]))
        with pytest.raises(SystemExit):
            # The stand-in for execv returns, so the search goes on to its end.
            dev.find_python()
        assert became[0] == [
            *[str(tmp_path / "python3.12")] * 2,
            str(ROOT / "dev"),
            "test",
            "-q",
        ]

    @pytest.mark.parametrize(
        ("arguments", "all_of_them"),
        [([], True), (["-k", "nothing"], True), (["tests/unit/test_dev.py::TestCommands"], False)],
    )
    def test_pytest_arguments(self, dev: Any, arguments: list[str], all_of_them: bool) -> None:
        folders = ["tests/unit", "tests/contract", "tests/integration"]
        own = ["-n", "2", "--dist", "worksteal", *folders] if all_of_them else []
        # Own ones come first, so that those given count.
        assert dev.pytest_arguments(arguments) == ["-m", "pytest", *own, *arguments]

    def test_soak_begins_here_with_the_full_count(
        self, dev: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[tuple[list[str], dict[str, str]]] = []

        def run(argv: list[str], *, cwd: Path, env: dict[str, str]) -> Any:
            ran.append((argv, env))
            return subprocess.CompletedProcess(argv, 3)

        monkeypatch.setattr(bootstrap, "set_up", lambda what: "python3")
        monkeypatch.setattr(dev.subprocess, "run", run)
        # What fails here spares the machine.
        assert dev.main("soak", []) == 3
        [(argv, environment)] = ran
        assert argv[-2:] == ["tests/contract", "tests/integration"]
        assert environment["SANDBOXD_SOAK"] == "1"

    @pytest.mark.parametrize("is_root", [True, False])
    def test_soak_runs_the_suite_in_minimal_roots(
        self, dev: Any, monkeypatch: pytest.MonkeyPatch, is_root: bool
    ) -> None:
        ran: list[tuple[list[str], dict[str, str]]] = []

        def run(argv: list[str], *, cwd: Path, env: dict[str, str]) -> Any:
            ran.append((argv, env))
            return subprocess.CompletedProcess(argv, len(ran) - 1)

        monkeypatch.setattr(bootstrap, "set_up", lambda what: "python3")
        monkeypatch.setattr(dev.os, "geteuid", lambda: 0 if is_root else 1000)
        monkeypatch.setattr(dev.subprocess, "run", run)
        monkeypatch.setattr(dev, "build_package", lambda arguments: None)
        monkeypatch.setattr(bootstrap, "install_cpython_tests", lambda: None)
        monkeypatch.delenv("SANDBOXD_TEST_STRICT", raising=False)
        assert dev.main("soak", []) == 1
        argv, environment = ran[1]
        assert (argv[-1] == "tests/packaging/test_minimal_roots.py") == is_root
        assert (environment.get("SANDBOXD_TEST_STRICT") == "1") == is_root

    def test_checkout_is_importable_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONPATH", "/elsewhere")
        assert bootstrap.child_environment()["PYTHONPATH"] == f"{ROOT}:/elsewhere"

    @pytest.mark.parametrize(("argument", "status"), [("help", 0), ("nonsense", 2)])
    def test_usage(self, argument: str, status: int) -> None:
        done = subprocess.run(
            [sys.executable, str(ROOT / "dev"), argument], capture_output=True, text=True
        )
        assert done.returncode == status
        assert "usage: ./dev COMMAND" in (done.stderr if status else done.stdout)
        assert ("unknown command 'nonsense'" in done.stderr) == bool(status)


class TestPackage:
    def test_no_place_for_it_is_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tmp_path.joinpath("file").touch()
        assert deb.main(["--output", str(tmp_path / "file" / "below")]) == 1
        assert capsys.readouterr().err.startswith("dev: cannot build the package: ")

    @pytest.mark.parametrize(
        ("arguments", "builds"),
        [
            ([], [deb.NATIVE]),
            (["-x"], [deb.NATIVE]),
            (["tests/system"], [deb.NATIVE]),
            (["tests/contract"], []),
            (["tests/system/test_oom.py::test_x"], []),
            (["tests/system/test_package.py", "-x"], [deb.NATIVE]),
            (["--suite", "bookworm"], [deb.BUNDLED]),
            (["--suite=bookworm", "-x"], [deb.BUNDLED]),
            # Its libraries are what tests run with there.
            (["--suite", "noble", "tests/contract"], [deb.BUNDLED]),
            (["-k", "bookworm"], [deb.NATIVE]),
        ],
    )
    def test_it_is_built_for_the_tests_that_install_it(
        self,
        dev: Any,
        monkeypatch: pytest.MonkeyPatch,
        arguments: list[str],
        builds: list[deb.Kind],
    ) -> None:
        built: list[deb.Kind] = []
        monkeypatch.setattr(deb, "build", lambda kind, output: built.append(kind))
        dev.build_package(arguments)
        assert built == builds

    def test_other_tests_run_where_it_cannot_be_built(
        self, dev: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail(kind: deb.Kind, output: Path) -> None:
            raise deb.BuildFailed("no")

        monkeypatch.setattr(deb, "build", fail)
        dev.build_package([])
        assert "cannot build the package: no" in capsys.readouterr().err
