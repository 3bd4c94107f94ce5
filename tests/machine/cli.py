# SPDX-License-Identifier: Apache-2.0
"""The command line: build, run, test, and up, sync, exec, fetch, down for a machine that stays."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

from . import accelerator, image, recipe, runs, session
from .channel import DeadlinePassed
from .host import MachineError, say
from .machine import Machine

EXIT_NO_TESTS = 5  # pytest's
EXIT_TIMEOUT = 98
EXIT_MACHINE = 99
ROOT = Path(__file__).resolve().parents[2]
TEST_ENVIRONMENT = {"SANDBOXD_TEST_STRICT": "1"}


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; 98 is a passed deadline, 99 a machine that could not do it."""
    parser = _parser()
    options, others = parser.parse_known_args(arguments)
    if others and options.action is not _test:
        parser.error(f"unknown arguments: {' '.join(others)}")
    options.pytest_arguments = [each for each in others if each != "--"]
    try:
        status: int = options.action(options)
    except DeadlinePassed as error:
        say(str(error))
        return EXIT_TIMEOUT
    except MachineError as error:
        say(str(error) + (f"\n{error.hint}" if error.hint else ""))
        return EXIT_MACHINE
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.machine",
        description="A Debian machine with systemd in QEMU, to run the checkout's tests as root.",
        epilog=f"exit status: the command's own; {EXIT_TIMEOUT}: deadline passed; "
        f"{EXIT_MACHINE}: the machine could not do it, nothing is known of the command",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("build", help="build the image unless the cache has it")
    _add_suite(command)
    command.set_defaults(action=_build)

    command = commands.add_parser("prune", help="remove images of other recipes from the cache")
    command.set_defaults(action=_prune)

    command = commands.add_parser("run", help="run a command in a fresh machine")
    _add_boot(command)
    _add_job(command, seconds=1800)
    command.add_argument("argv", nargs="+", metavar="COMMAND")
    command.set_defaults(action=_run)

    command = commands.add_parser(
        "test",
        help="run the tests that need systemd in a fresh machine",
        usage="%(prog)s [OPTION]... [PYTEST_ARGUMENT]...",
        description="Arguments not listed here are pytest's; a path replaces the default runs.",
        allow_abbrev=False,
    )
    _add_boot(command)
    _add_job(command, seconds=3600)
    command.set_defaults(action=_test)

    command = commands.add_parser("up", help="start a machine that keeps running")
    _add_name(command)
    _add_boot(command)
    command.set_defaults(action=_up)

    command = commands.add_parser("sync", help="copy the checkout into a running machine")
    _add_name(command)
    _add_source(command)
    command.set_defaults(action=_sync)

    command = commands.add_parser("exec", help="run a command in a running machine")
    _add_name(command)
    _add_command_options(command, seconds=1800)
    command.add_argument("argv", nargs="+", metavar="COMMAND")
    command.set_defaults(action=_exec)

    command = commands.add_parser("fetch", help="save a running machine's journal and output")
    _add_name(command)
    _add_out(command)
    command.set_defaults(action=_fetch)

    command = commands.add_parser("down", help="end a running machine")
    _add_name(command)
    command.set_defaults(action=_down)
    return parser


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="default", help="which machine (default: default)")


def _add_suite(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suite",
        choices=list(recipe.SUITES),
        default=recipe.SUITE,
        help=f"the release (default: {recipe.SUITE})",
    )


def _add_boot(parser: argparse.ArgumentParser) -> None:
    _add_suite(parser)
    parser.add_argument("--kernel-arg", action="append", default=[], metavar="ARGUMENT")
    parser.add_argument("--legacy", action="store_true", help="boot with cgroup v1 (hybrid)")


def _add_job(parser: argparse.ArgumentParser, *, seconds: int) -> None:
    _add_command_options(parser, seconds=seconds)
    _add_source(parser)
    _add_out(parser)


def _add_command_options(parser: argparse.ArgumentParser, *, seconds: int) -> None:
    parser.add_argument("--timeout", type=float, default=seconds, metavar="SECONDS")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", type=Path, default=ROOT, help="the checkout to copy in")


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=ROOT / "build/machine", metavar="DIRECTORY")


def _environment(options: argparse.Namespace) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in options.env]
    return {name: value for name, _, value in pairs}


def _kernel_arguments(options: argparse.Namespace) -> tuple[str, ...]:
    return (*options.kernel_arg, *(recipe.LEGACY_ARGUMENTS if options.legacy else ()))


def _build(options: argparse.Namespace) -> int:
    built = image.ensure(options.suite)
    say(f"image {built.directory}, accelerator {accelerator.choose(built)}")
    return 0


def _prune(options: argparse.Namespace) -> int:
    running = [machine.directory.name for machine in Machine.all() if machine.running()]
    if running:
        raise MachineError(f"cannot prune while machines run: {', '.join(running)}")
    for directory in image.others():
        say(f"removing {directory}")
        shutil.rmtree(directory)
    return 0


def _run(options: argparse.Namespace) -> int:
    (status,) = session.run(_job(options, [options.argv], {}))
    return status


def _test(options: argparse.Namespace) -> int:
    given = options.pytest_arguments
    named = any((options.source / each.partition("::")[0]).exists() for each in given)
    share = float(_environment(options).get("SANDBOXD_SOAK") or 0.1)
    commands = runs.commands(options.suite, given, named=named, is_full=share >= 1)
    statuses = session.run(_job(options, commands, TEST_ENVIRONMENT))
    # What -k chose may all be in one of the runs.
    failed = [status for status in statuses if status not in {0, EXIT_NO_TESTS}]
    return failed[0] if failed else min(statuses)


def _job(
    options: argparse.Namespace, commands: list[list[str]], environment: dict[str, str]
) -> session.Job:
    return session.Job(
        commands=commands,
        source=options.source,
        output=options.out,
        seconds=options.timeout,
        environment={**environment, **_environment(options)},
        suite=options.suite,
        kernel_arguments=_kernel_arguments(options),
    )


def _up(options: argparse.Namespace) -> int:
    begun = time.monotonic()
    machine = Machine.named(options.name)
    session.boot(machine, options.suite, _kernel_arguments(options), outlives_parent=True)
    say(f"{options.name} is up after {time.monotonic() - begun:.1f} s")
    return 0


def _sync(options: argparse.Namespace) -> int:
    done = Machine.named(options.name).copy_in(options.source)
    say(f"{done['changed']} changed, {done['removed']} removed in {recipe.SOURCE_DIRECTORY}")
    return 0


def _exec(options: argparse.Namespace) -> int:
    machine = Machine.named(options.name)
    return machine.run(options.argv, _environment(options), seconds=options.timeout)


def _fetch(options: argparse.Namespace) -> int:
    session.save(Machine.named(options.name), options.out)
    say(f"journal and output are in {options.out}")
    return 0


def _down(options: argparse.Namespace) -> int:
    Machine.named(options.name).remove()
    return 0
