# SPDX-License-Identifier: Apache-2.0
"""The settings file of the package, and the manual that is made from it and from the program."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from reference import manual

from sandboxd.api.table import ROUTES
from sandboxd.daemon import config
from tests.conftest import unmet

CONTENT = manual.SETTINGS.read_text()
SECTIONS = manual.settings(CONTENT)[1]
ENTRIES = [entry for _, entries in SECTIONS for entry in entries]


def value(line: str) -> tuple[str, Any]:
    """The one setting of a line as the file would have it."""
    ((name, given),) = tomllib.loads(line).items()
    return name, given


def test_as_shipped_it_sets_nothing() -> None:
    assert tomllib.loads(CONTENT) == {}


def test_it_has_every_setting_once() -> None:
    names = [value(line)[0] for entry in ENTRIES for line in entry.lines]
    assert sorted(names) == sorted(config.Config.model_fields)
    assert len(names) == len(re.findall(r"(?m)^#\w+ = ", CONTENT)), "none is lost to the parser"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: value(entry.lines[0])[0])
def test_what_is_shown_is_the_default(entry: manual.Setting) -> None:
    defaults = config.Config()
    for line in entry.lines:
        name, given = value(line)
        taken = getattr(config.Config.model_validate({name: given}), name)
        default = getattr(defaults, name)
        if "Default: " in entry.text:
            assert default is None, f"{name} has the default {default}"
            assert taken is not None
        else:
            assert taken == default


def test_it_can_be_used_with_every_line_on(tmp_path: Path) -> None:
    file = tmp_path / "sandboxd.toml"
    file.write_text(re.sub(r"(?m)^#(?=\w+ = )", "", CONTENT))
    assert config.load(str(file), {}).admin_group == "adm"


def test_the_manual_has_every_setting_option_and_route() -> None:
    pages = {name: text.replace("\\-", "-") for name, text in manual.pages().items()}
    for name in config.Config.model_fields:
        assert f"\n\\fB{name} = " in pages["man/man5/sandboxd.toml.5"]
    for action in config.argument_parser()._actions:
        for flag in action.option_strings:
            assert flag in pages["man/man8/sandboxd.8"]
    for route in ROUTES:
        assert f"{route.method} {route.path}\\fR\n" in pages["man/man7/sandboxd-api.7"]


@pytest.mark.parametrize("name", manual.pages())
def test_groff_takes_the_pages(name: str) -> None:
    if shutil.which("groff") is None:
        unmet("groff (apt-get install groff-base)")
    command = ["groff", "-man", "-Tutf8", "-wall", "-z"]
    page = manual.pages()[name]
    done = subprocess.run(command, input=page, capture_output=True, text=True, check=True)
    assert done.stderr == ""
