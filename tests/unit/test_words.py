# SPDX-License-Identifier: Apache-2.0
"""What packaging/words.py counts in a file, and when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import words

ROOT = Path(__file__).resolve().parents[2]
PLAIN = "The spawner forks a shim for each execution."
DENSE = "It is theirs, which nobody has."
SOURCE = '''\
#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first sentence of a module. The second one
goes on, and ends: the third
begins behind a colon."""

import os  # noqa: F401 - a comment for a linter is not counted

# A comment of two lines
# is one sentence; too short.
LIMIT = "a string is not text about the code, it or them"


class Kept:
    """
    Whatever it holds
    is theirs."""

    size = 1  # too short, it is


async def wait() -> None:
    """Waits."""
'''


def found(source: str) -> list[tuple[int, str, int, int]]:
    return [each[1:] for each in words.sentences(Path("some.py"), source)]


def written(path: Path, *texts: str) -> str:
    path.write_text("".join(f"# {text}\n\n" for text in texts))
    return str(path)


def test_sentences_have_a_line_and_counts() -> None:
    assert found(SOURCE) == [
        (3, "The first sentence of a module.", 6, 0),
        (3, "The second one goes on, and ends:", 7, 1),
        (4, "the third begins behind a colon.", 6, 0),
        (15, "Whatever it holds is theirs.", 5, 2),
        (9, "A comment of two lines is one sentence;", 8, 1),
    ]


def test_separate_comments_are_separate_sentences() -> None:
    source = "# one two three four five\n\n# six seven eight nine ten\nx = 1  # of the next line\n"
    assert [(line, text) for line, text, _, _ in found(source)] == [
        (1, "one two three four five"),
        (3, "six seven eight nine ten of the next line"),
    ]


def test_plain_words_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert words.main([written(tmp_path / "plain.py", PLAIN)]) == 0
    assert capsys.readouterr().out == (
        "pronouns: 0.0% of 8 words (at most 3%); dense: 0.0% of 1 sentences (at most 1%)\n"
    )


def test_a_dense_sentence_fails_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below").mkdir()
    path = written(tmp_path / "below/dense.py", *[PLAIN] * 98, DENSE, DENSE)
    assert words.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{path}:197: {DENSE}",
        f"{path}:199: {DENSE}",
        "pronouns: 0.8% of 796 words (at most 3%); dense: 2.0% of 100 sentences (at most 1%)",
    ]


def test_one_dense_sentence_of_a_hundred_passes(tmp_path: Path) -> None:
    assert words.main([written(tmp_path / "dense.py", *[PLAIN] * 99, DENSE)]) == 0


def test_many_pronouns_fail_though_no_sentence_is_dense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sparse = "The spawner forks the shim and watches its pidfd."
    path = written(tmp_path / "many.py", *[sparse] * 30)
    assert words.main([path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}:1: {sparse}"
    assert len(lines) == words.SHOWN + 1


def test_a_path_that_is_not_there_is_no_plain_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        words.main([str(tmp_path / "gone")])


def test_sandboxd_is_plain() -> None:
    assert words.main([str(ROOT / "sandboxd")]) == 0
