# SPDX-License-Identifier: Apache-2.0
"""The command line, up to the request."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd import __version__
from sandboxd.ctl import limits
from sandboxd.ctl.main import COMMANDS, WITHOUT_DAEMON, command_module, parse


def test_every_command_has_its_module_and_every_module_its_command() -> None:
    folder = Path(__file__).parents[3] / "sandboxd" / "ctl" / "commands"
    modules = {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")}
    assert modules == set(COMMANDS)
    for name in COMMANDS:
        module = command_module(name)
        assert callable(module.configure)
        assert callable(module.execute)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([name, "--help"])
    assert ended.value.code == 0
    assert ("--socket" in capsys.readouterr().out) == (name not in WITHOUT_DAEMON)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for name, text in COMMANDS.items():
        assert any(line.split() == [name, *text.split()] for line in said.splitlines())


@pytest.mark.parametrize(
    ("argv", "payload"),
    [
        (["run", "--", "ls", "-l"], ["ls", "-l"]),
        (["run", "--", "--help"], ["--help"]),
        (["run", "--", "sh", "-c", "a", "--", "b"], ["sh", "-c", "a", "--", "b"]),
        (["run", "--pids", "3", "ls", "-l", "--memory"], ["ls", "-l", "--memory"]),
        (["exec", "box", "--quiet", "--", "ls"], ["ls"]),
        (["exec", "--quiet", "box", "ls", "-q"], ["ls", "-q"]),
        (["run", "--"], []),
        (["run"], []),
    ],
)
def test_the_payload_is_taken_as_it_is(argv: list[str], payload: list[str]) -> None:
    assert parse(argv).payload == payload


def test_limits_are_plain_numbers() -> None:
    arguments = parse(
        "run --memory 256M --cpus 150% --pids 64 --timeout 1min --read-bps 1K --write-bps 2K "
        "--max-output 1M --cpu-time 3 --open-files 9 --file-size 1 --disk 1G --cpu-weight 50 "
        "-- true".split()
    )
    assert limits.limits(arguments) == {
        "memory_bytes": 256 << 20, "cpus": 1.5, "pids": 64, "timeout_seconds": 60.0,
        "cpu_weight": 50, "io_read_bytes_per_second": 1024, "io_write_bytes_per_second": 2048,
        "max_output_bytes": 1 << 20, "cpu_seconds": 3.0, "open_files": 9, "file_size_bytes": 1,
        "disk_bytes": 1 << 30,
    }  # fmt: skip


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nosuch"],
        ["run", "--memory", "0", "--", "true"],
        ["run", "--memory", "lots", "--", "true"],
        ["run", "--cpus", "nan", "--", "true"],
        ["run", "--pids", "-1", "--", "true"],
        ["run", "--timeout", "-1s", "--", "true"],
        ["run", "--env", "=a", "--", "true"],
        ["run", "--env", "NOT_SET_ANYWHERE_AT_ALL", "--", "true"],
        ["run", "--isolation", "nosuch", "--", "true"],
        ["run", "--bind", "/only", "--", "true"],
        ["run", "--bind", "/a:/b:/c", "--", "true"],
        ["run", "--nosuch", "--", "true"],
        ["kill"],
        ["kill", "--signal", "9", "--grace", "1s", "box", "abcdefghijkl"],
        ["helpme"],
        ["help", "nosuch"],
        ["ls", "box"],
    ],
)
def test_a_bad_command_line_is_125(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(argv)
    assert ended.value.code == 125
    usage, reason, more = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage: sandboxctl")
    assert reason.startswith("sandboxctl")
    assert more.endswith("--help says more")


@pytest.mark.parametrize(
    ("argv", "bound"),
    [
        (["run", "--cpu-weight", "-1", "--", "true"], "must be a whole number from 1 to 10000"),
        (["run", "--pids", "many", "--", "true"], "must be a whole number from 1 to 4194304"),
        (["logs", "-n", "-1", "box"], "must be a whole number, 0 or more"),
        (["run", "--timeout", "9999d", "--", "true"], "must be at most 3660 days"),
        (["run", "--cpus", "9999", "--", "true"], "must be at most 8192 cores"),
    ],
)
def test_a_number_that_is_refused_is_told_its_range(
    argv: list[str], bound: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(argv)
    assert bound in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("run", "sandboxctl run [OPTIONS] -- PROGRAM [ARGUMENT...]"),
        ("exec", "sandboxctl exec [OPTIONS] SANDBOX -- PROGRAM [ARGUMENT...]"),
        ("kill", "sandboxctl kill [OPTIONS] SANDBOX [EXECUTION]"),
        ("rm", "sandboxctl rm [OPTIONS] [SANDBOX...]"),
        ("ls", "sandboxctl ls [OPTIONS]"),
    ],
)
@pytest.mark.parametrize("rest", [["--help"], ["--help", "--", "true"]])
def test_usage_is_one_line(
    name: str, usage: str, rest: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([name, *rest])
    assert capsys.readouterr().out.splitlines()[:2] == [f"usage: {usage}", ""]


def test_an_option_is_known_by_its_whole_name_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["create", "--mem", "64M"])
    assert ended.value.code == 125
    assert "unrecognized arguments: --mem" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["runn"], "unknown command 'runn': did you mean run?"),
        (["list"], "did you mean ls?"),
        (["hlep"], "did you mean help?"),
        (["stop"], "did you mean kill?"),
        (["create", "--mem", "64M"], "--mem 64M: did you mean --memory?"),
        (["run", "-m", "64M", "--", "true"], "did you mean --memory?"),
        (["run", "--memroy=64M", "--", "true"], "did you mean --memory?"),
        (["run", "--rm", "--", "true"], "takes its sandbox away by itself"),
        (["create", "box"], "a name is given by --name box"),
        (["ls", "--json"], "unrecognized arguments: --json"),
    ],
)
def test_what_was_meant_is_named(
    argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(argv)
    assert ended.value.code == 125
    assert hint in capsys.readouterr().err


def test_help_and_version_are_words_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    for argv, said in (
        (["help"], "commands:"), (["help", "run"], "usage: sandboxctl run"),
        (["version"], f"sandboxctl {__version__}"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            parse(argv)
        assert ended.value.code == 0
        assert said in capsys.readouterr().out


def test_an_option_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--socket", "/run/some.sock", "ls"])
    assert ended.value.code == 125
    assert "options such as --socket come after the command" in capsys.readouterr().err


def test_the_disk_of_an_execution_is_known_but_not_offered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parse(["exec", "--disk", "1G", "box", "--", "true"]).disk_bytes == 1 << 30
    with pytest.raises(SystemExit):
        parse(["exec", "--help"])
    assert "--disk" not in capsys.readouterr().out


def test_env_without_a_value_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VARIABLE", "of ours")
    arguments = parse(["run", "-e", "A_VARIABLE", "-e", "B=c=d", "-e", "C=", "--", "true"])
    assert dict(arguments.env) == {"A_VARIABLE": "of ours", "B": "c=d", "C": ""}


def test_an_image_and_binds_of_the_hosts() -> None:
    binds = ["--bind", "/srv/a:/mnt/a", "--bind", "/srv/b:/mnt/b:rw"]
    arguments = parse(["create", "--rootfs", "debian", *binds])
    assert limits.place(arguments) == {
        "rootfs": "debian",
        "binds": [
            {"source": "/srv/a", "target": "/mnt/a", "writable": False},
            {"source": "/srv/b", "target": "/mnt/b", "writable": True},
        ],
    }
