# SPDX-License-Identifier: Apache-2.0
"""What man pages are written in (man(7)). Text is plain; lines are those of the page's source."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd import __version__


def page(
    name: str,
    number: int,
    summary: str,
    synopsis: list[str],
    sections: Iterable[tuple[str, list[str]]],
) -> str:
    """A whole page. Of the synopsis and of each section: lines."""
    lines = [
        f'.TH "{text(name.upper())}" "{number}" "" "sandboxd {__version__}" "sandboxd"',
        ".SH NAME", rf"{text(name)} \- {text(summary)}",
    ]  # fmt: skip
    if synopsis:
        lines += [".SH SYNOPSIS", *synopsis]
    for title, body in sections:
        lines += [f".SH {title}", *body]
    return "\n".join([*lines, ""])


def terms(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """A list of terms, each with a text."""
    lines = []
    for term, description in pairs:
        lines += [".TP", rf"\fB{text(term)}\fR", text(description) or r"\&"]
    return lines


def paragraphs(*descriptions: str) -> list[str]:
    """One after the other."""
    return [line for description in descriptions for line in (".PP", text(description))]


def literal(lines: Iterable[str]) -> list[str]:
    """Lines as they are, indented."""
    return [".PP", ".in +4n", ".nf", *(text(line) for line in lines), ".fi", ".in"]


def text(plain: str) -> str:
    """Plain text, with nothing that troff would obey."""
    plain = plain.replace("\\", r"\(rs").replace("-", r"\-").replace("\n", " ")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain
