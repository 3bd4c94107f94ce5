# SPDX-License-Identifier: Apache-2.0
"""The public names: what a type checker sees is what there is, and each is loaded on its own."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd import client

ROOT = Path(__file__).parents[3]


def test_names_for_the_type_checker_are_those_that_are_there() -> None:
    tree = ast.parse(Path(client.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(seen, key=str) == client.__all__
    for name, module in seen.items():
        assert name is not None
        assert module is not None
        assert getattr(client, name) is getattr(importlib.import_module(module), name)
        assert name in dir(client)


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = client.Nothing


@pytest.mark.parametrize("name", ["Sandbox", "SandboxdError"])
def test_the_blocking_half_loads_no_event_loop(name: str) -> None:
    show = f"import sys; from sandboxd.client import {name}; print('asyncio' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", show], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_it_is_typed() -> None:
    assert (Path(client.__file__).parents[1] / "py.typed").is_file()
