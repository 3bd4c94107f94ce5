# SPDX-License-Identifier: Apache-2.0
"""A narrow terminal loses the columns of least worth, and never a name, a state or a command."""

from __future__ import annotations

import pytest

from sandboxd.ctl.columns import fit

HEADER = ("SANDBOX", "NAME", "STATE", "CPU", "PIDS", "READ/s", "DISK")
ROW = ("abcdefghijkl", "box", "ready", "0.10/2", "1/512", "3 MiB", "1 GiB")


@pytest.mark.parametrize(
    ("width", "kept"),
    [
        (200, HEADER),
        (55, HEADER),
        (54, ("SANDBOX", "NAME", "STATE", "CPU", "PIDS", "DISK")),
        (40, ("SANDBOX", "NAME", "STATE", "CPU", "PIDS")),
        (33, ("SANDBOX", "NAME", "STATE", "CPU")),
        (20, ("NAME", "STATE", "CPU")),
        (1, ("NAME", "STATE", "CPU")),
    ],
)
def test_columns_go_by_worth(width: int, kept: tuple[str, ...]) -> None:
    header, row = fit([HEADER, ROW], width)
    assert header == kept
    assert row == tuple(ROW[HEADER.index(name)] for name in kept)


def test_ids_stay_where_one_has_no_name() -> None:
    nameless = ("mnopqrstuvwx", "-", *ROW[2:])
    assert fit([HEADER, ROW, nameless], 10)[0] == ("SANDBOX", "NAME", "STATE", "CPU")


def test_a_long_command_costs_no_other_column() -> None:
    table = [("ID", "AGE", "COMMAND"), ("a" * 12, "3 s", "x" * 500)]
    assert fit(table, 60) == table
