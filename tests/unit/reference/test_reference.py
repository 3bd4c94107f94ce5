# SPDX-License-Identifier: Apache-2.0
"""Man pages and completion: all of the parsers is in them, and their readers take them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from reference.__main__ import files
from reference.describe import describe

from sandboxd.ctl.main import COMMANDS
from tests.conftest import unmet

SCRIPTS = {
    "bash": "bash-completion/completions/sandboxctl",
    "zsh": "zsh/vendor-completions/_sandboxctl",
    "fish": "fish/vendor_completions.d/sandboxctl.fish",
}


def completed(tmp_path: Path, line: str) -> set[str]:
    """What bash offers at the end of a command line."""
    script = tmp_path / "completion"
    script.write_text(files()["bash-completion/completions/sandboxctl"])
    words = line.split(" ")
    array = " ".join(f"'{word}'" for word in words)
    program = (
        f"source {script}; sandboxctl() {{ printf 'abcdefghijkl\\n'; }};"
        f"COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _sandboxctl;"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("sandboxctl su", {"suspend"}),
        ("sandboxctl run --mem", {"--memory"}),
        ("sandboxctl run --isolation st", {"standard", "strict"}),
        ("sandboxctl ls -o ", {"table", "json"}),
        ("sandboxctl exec ab", {"abcdefghijkl"}),
        ("sandboxctl run -- --mem", set()),
    ],
)
def test_bash_completes(tmp_path: Path, line: str, offered: set[str]) -> None:
    assert completed(tmp_path, line) == offered


def test_every_command_and_option_is_in_every_form() -> None:
    written = files()
    commands = describe()
    assert [command.name for command in commands] == list(COMMANDS)
    for command in commands:
        page = written[f"man/man1/sandboxctl-{command.name}.1"].replace("\\-", "-")
        assert command.summary in page
        for option in command.options:
            for flag in option.flags:
                assert flag in page
                assert flag in written["bash-completion/completions/sandboxctl"]
                assert flag in written["zsh/vendor-completions/_sandboxctl"]
                assert (
                    f" {flag.lstrip('-')} " in written["fish/vendor_completions.d/sandboxctl.fish"]
                )
        for argument in command.arguments:
            assert argument.name in page


@pytest.mark.parametrize("shell", [shell for shell in SCRIPTS if shutil.which(shell)])
def test_shells_can_parse_theirs(tmp_path: Path, shell: str) -> None:
    script = tmp_path / "script"
    script.write_text(files()[SCRIPTS[shell]])
    subprocess.run([shell, "-n", str(script)], check=True, capture_output=True)


def test_groff_has_nothing_to_say() -> None:
    if shutil.which("groff") is None:
        unmet("groff (apt-get install groff-base)")
    for name, text in files().items():
        if name.startswith("man/"):
            done = subprocess.run(
                ["groff", "-man", "-ww", "-z"], input=text, capture_output=True, text=True
            )
            assert (done.returncode, done.stderr) == (0, ""), name


def test_they_are_written_below_a_directory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reference", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": ".:packaging"},
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {
        os.path.relpath(os.path.join(parent, name), tmp_path)
        for parent, _, names in os.walk(tmp_path)
        for name in names
    }
    assert found == set(files())
    assert len(done.stdout.splitlines()) == len(found)
