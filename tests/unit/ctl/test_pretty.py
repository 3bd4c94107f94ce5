# SPDX-License-Identifier: Apache-2.0
"""Tables on a terminal: fitted to it, coloured by meaning, and blind to what strangers wrote."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout

import pytest
from rich.cells import cell_len

from sandboxd.ctl import pretty, show

HEADER = ("ID", "STATE", "COMMAND")
CSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOSTILE = [
    "[red]x[/red]", ":smile:", "\x1b]0;title\x07", "\x1b[2J", "a\u202eb\u200bc", "日本語" * 20,
    "e\u0301" * 40, "x" * 100_000, "https://example.org", "line\nanother\rone\ttab", "[/]",
]  # fmt: skip


class Screen(io.StringIO):
    is_terminal = True

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """stdout, 60 columns wide."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    return Screen()


def shown(screen: Screen, *parts: show.Part) -> list[str]:
    with redirect_stdout(screen):
        show.print_parts(parts)
    return screen.getvalue().splitlines()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_strangers_wrote_is_only_text(screen: Screen, text: str) -> None:
    found = shown(screen, [HEADER, ("a" * 12, "ready", text)], text[:25])
    plain = [CSI.sub("", line) for line in found]
    assert len(plain) == 3, "a row is a line"
    assert all(cell_len(line) <= 60 for line in plain)
    assert all(char.isprintable() for line in plain for char in line)
    expected = show.printable(text)
    assert plain[1].split()[2].removesuffix("…") in expected
    assert plain[2].strip() in (expected[:25].strip(), expected[:25])


def test_states_and_verdicts_have_their_colour(screen: Screen) -> None:
    rows = [("a" * 12, state, "x") for state in ("ready", "suspended", "OOM_KILLED", "odd")]
    text = "\n".join(shown(screen, [HEADER, *rows]))
    for word, colour in (("ready", 32), ("suspended", 33), ("OOM_KILLED", 31)):
        assert f"\x1b[{colour}m{word}" in text
    assert "m odd" not in text
    assert pretty.style("OF LIMIT", "[#########.]  93%") == "red"
    assert pretty.style("OF LIMIT", "[##########] 170%") == "red"
    assert pretty.style("OF LIMIT", "[#####.....]  50%") == "green"
    assert pretty.style("OF LIMIT", "?") == ""


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_without_colour_where_none_is_wanted(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    text = "\n".join(shown(screen, [HEADER, ("a" * 12, "ready", "x")]))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text)
    assert "ready" in text


def test_a_reason_is_folded(screen: Screen) -> None:
    how = "the kernel holds it for the sum of all processes of the sandbox"
    header = ("LIMIT", "VALUE", "ENFORCED BY", "HOW")
    found = shown(screen, [header, ("memory_bytes", "64 MiB", "kernel", how)])
    plain = [CSI.sub("", line) for line in found]
    assert plain[1].startswith("memory_bytes ")
    column = plain[0].index("HOW")
    assert len(plain) > 2
    assert " ".join(line[column:].strip() for line in plain[1:]) == how


def test_an_id_is_whole_on_the_narrowest_terminal(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    found = shown(screen, [HEADER, ("a" * 12, "suspended", "sleep 9")])
    assert CSI.sub("", found[1]).startswith("a" * 12)


def test_what_is_no_terminal_gets_plain_lines(screen: Screen) -> None:
    screen.is_terminal = False
    row = ("a" * 12, "ready", "x" * 200)
    assert shown(screen, [HEADER, row], "end") == [
        "ID            STATE  COMMAND",
        f"{row[0]}  ready  {row[2]}",
        "end",
    ]


@pytest.mark.parametrize("word", ["K" * 500, "日本" * 100], ids=["long", "wide"])
def test_a_long_field_hides_no_value(screen: Screen, word: str) -> None:
    rows = [("state", "ready"), (f"metadata {word}", "v")]
    plain = [CSI.sub("", line) for line in shown(screen, [("FIELD", "VALUE"), *rows])]
    assert plain[0].split() == ["FIELD", "VALUE"]
    assert plain[1].split() == ["state", "ready"]
    assert plain[2].split()[-1] == "v"


def test_a_long_name_hides_no_state(screen: Screen) -> None:
    header = ("ID", "NAME", "STATE", "MEMORY", "AGE")
    rows = [
        ("a" * 12, "n" * 64, "suspended", "64 MiB", "3 s"),
        ("b" * 12, "-", "ready", "?", "9 s"),
    ]
    plain = [CSI.sub("", line) for line in shown(screen, [header, *rows])]
    assert tuple(plain[0].split()) == header
    assert "suspended  64 MiB  3 s" in plain[1]
    assert plain[2].split() == ["b" * 12, "-", "ready", "?", "9", "s"]


@pytest.mark.parametrize("command", ["true", "x" * 200])
def test_a_long_verdict_hides_no_id(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    header = ("SANDBOX", "EXECUTION", "ENDED", "CPU s", "PEAK", "VERDICT", "COMMAND")
    verdict = "OUTPUT_LIMIT (SANDBOX_OUTPUT_LIMIT_EXCEEDED, the sandbox's limit of 10 MiB)"
    row = ("a" * 12, "b" * 12, "61 s", "0.00", "1.8 MiB", verdict, command)
    plain = [CSI.sub("", line) for line in shown(screen, [header, row])]
    assert "EXECUTION" in plain[0]
    assert plain[1].startswith(f"{'a' * 12}  {'b' * 12}  61 s  ")
    assert "OUTPUT_LIMIT (" in plain[1]
    assert plain[1].rstrip().endswith(command if command == "true" else "x…")
    assert len(plain) == 2
    assert len(plain[1]) <= 80


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_few_characters_shows_the_rest(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    monkeypatch.setattr(stream, "isatty", lambda: True)
    with redirect_stdout(stream):
        show.print_parts([[("ID", "COMMAND"), ("a" * 12, "日本" + "x" * 100)]])
    assert b"a" * 12 + b"  ??xx" in written.getvalue()
