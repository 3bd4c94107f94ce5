# SPDX-License-Identifier: Apache-2.0
"""The source of man pages (man(7)). Text is plain; lines are source lines."""

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
    """Return a whole page. synopsis and sections: source lines."""
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
    """Return a list of terms, each with a text."""
    lines = []
    for term, description in pairs:
        lines += [".TP", rf"\fB{text(term)}\fR", text(description) or r"\&"]
    return lines


def paragraphs(*descriptions: str) -> list[str]:
    """Return a paragraph for each text."""
    return [line for description in descriptions for line in (".PP", text(description))]


def literal(lines: Iterable[str]) -> list[str]:
    """Return the lines verbatim, indented."""
    return [".PP", ".in +4n", ".nf", *(text(line) for line in lines), ".fi", ".in"]


def text(plain: str) -> str:
    """Escape plain text for troff."""
    plain = plain.replace("\\", r"\(rs").replace("-", r"\-").replace("\n", " ")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain
