#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fail where comments and docstrings say "it", "those" or "which" in place of their subject.

`./dev lint` runs `words.py sandboxd`. Counted are sentences of five words or more. Too many are
pronouns above 3 % of all words, or above 1 % of dense sentences, of which a quarter are pronouns.
Comparable projects have 1 to 3.5 % of words.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PRONOUNS = frozenset(
    "it its they their them these those one ones who whose whom whoever whatever which other others"
    " another nobody somebody anybody nothing something anything everything such".split()
)
MOST_PRONOUNS = 0.03
MOST_DENSE = 0.01
DENSE = 0.25
SHORTEST = 5
SHOWN = 20
SENTENCE_END = re.compile(r"(?<=[.:;])\s+")
WORD = re.compile(r"[a-z']+")
# Comments that tools read.
DIRECTIVE = re.compile(r"SPDX|fmt:|noqa|type: ignore")


class Sentence(NamedTuple):
    """One sentence and where it begins; `words` and `pronouns` are counts."""

    path: Path
    line: int
    text: str
    words: int
    pronouns: int

    @property
    def share(self) -> float:
        return self.pronouns / self.words


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each run of comments on adjacent lines."""
    block: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or DIRECTIVE.search(token.string):
            continue
        line = token.start[0]
        if line != first + len(block):
            if block:
                yield first, "\n".join(block)
            block, first = [], line
        block.append(token.string[1:].strip())
    if block:
        yield first, "\n".join(block)


def sentences(path: Path, source: str) -> Iterator[Sentence]:
    """Yield the counted sentences of one file."""
    for first, text in (*docstrings(source), *comments(source)):
        begin = 0
        for end in (*SENTENCE_END.finditer(text), None):
            sentence = text[begin : end.start() if end else None]
            words = WORD.findall(sentence.lower())
            if len(words) >= SHORTEST:
                line = first + text.count("\n", 0, begin)
                pronouns = sum(word in PRONOUNS for word in words)
                joined = " ".join(sentence.split())
                yield Sentence(path, line, joined, len(words), pronouns)
            begin = end.end() if end else 0


def files(paths: Sequence[Path]) -> list[Path]:
    """Return the Python files at or below `paths`."""
    return sorted(
        file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])
    )


def judge(found: Sequence[Sentence]) -> tuple[bool, list[str]]:
    """Return whether the shares are small enough, and what to print.

    Where a share is too large the worst sentences come first, each with its file and line.
    """
    words = sum(each.words for each in found)
    pronouns = sum(each.pronouns for each in found) / max(1, words)
    dense = sum(each.share >= DENSE for each in found) / max(1, len(found))
    is_plain = pronouns <= MOST_PRONOUNS and dense <= MOST_DENSE
    lines = [
        f"pronouns: {pronouns:.1%} of {words} words (at most {MOST_PRONOUNS:.0%}); dense: "
        f"{dense:.1%} of {len(found)} sentences (at most {MOST_DENSE:.0%})"
    ]
    if not is_plain:
        worst = sorted(found, key=lambda each: (-each.share, -each.pronouns))
        shown = [each for each in worst if each.pronouns][:SHOWN]
        lines[:0] = [f"{each.path}:{each.line}: {each.text}" for each in shown]
    return is_plain, lines


def main(arguments: Sequence[str]) -> int:
    """Judge the files and folders in `arguments`; return the exit status."""
    paths = files([Path(argument) for argument in arguments])
    found = [each for path in paths for each in sentences(path, path.read_text(encoding="utf-8"))]
    is_plain, lines = judge(found)
    print("\n".join(lines))
    return 0 if is_plain else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
