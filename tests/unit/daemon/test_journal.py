# SPDX-License-Identifier: Apache-2.0
"""Log lines as journal entries: fields that journalctl finds, bounded, text where it is away."""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.core.logs import ASKED, Asked, about
from sandboxd.daemon import journal


def parse(data: bytes) -> list[tuple[str, bytes]]:
    """Fields of an entry in the journal's native protocol."""
    found = []
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + size], rest[8 + size + 1 :]
        found.append((name.decode(), value))
        data = rest
    return found


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "journal"))
        bound.settimeout(5)
        yield bound


@contextmanager
def logging_to(path: Path) -> Iterator[logging.Logger]:
    logger = logging.Logger("sandboxd.test")
    handler = journal.JournalHandler(str(path))
    logger.addHandler(handler)
    yield logger
    handler.close()


def test_a_line_has_the_fields_of_what_it_is_about(tmp_path: Path, peer: socket.socket) -> None:
    units = ["a.scope", "b.slice"]
    token = ASKED.set(Asked("rrrrrrrrrrrr", 1000, 42))
    extra = about(SANDBOX_ID="s", EXECUTION_ID=None, OBJECT_SYSTEMD_UNIT=units)
    with logging_to(tmp_path / "journal") as logger:
        logger.warning("Ended %s\nMESSAGE=forged", "x", extra=extra)
    ASKED.reset(token)
    fields = parse(peer.recv(1 << 20))
    assert [value for name, value in fields if name == "MESSAGE"] == [b"Ended x\nMESSAGE=forged"]
    named = dict(fields)
    assert named["PRIORITY"] == b"4"
    assert named["SYSLOG_IDENTIFIER"] == b"sandboxd"
    assert named["SANDBOX_ID"] == b"s"
    assert "EXECUTION_ID" not in named
    assert (named["REQUEST_ID"], named["CALLER_UID"], named["CALLER_PID"]) == (
        b"rrrrrrrrrrrr", b"1000", b"42",
    )  # fmt: skip
    told = [value.decode() for name, value in fields if name == "OBJECT_SYSTEMD_UNIT"]
    assert told == units


def test_an_entry_is_bounded(tmp_path: Path, peer: socket.socket) -> None:
    extra = about(**{f"F{n}": "y" * (1 << 20) for n in range(20)})
    with logging_to(tmp_path / "journal") as logger:
        logger.error("x" * (1 << 20), extra=extra)
    named = dict(parse(peer.recv(1 << 20)))
    assert named["PRIORITY"] == b"3"
    assert 1000 < len(named["MESSAGE"]) < 1 << 17


def test_a_traceback_is_part_of_the_message(tmp_path: Path, peer: socket.socket) -> None:
    with logging_to(tmp_path / "journal") as logger:
        try:
            raise ValueError("the cause")
        except ValueError:
            logger.exception("Cannot")
    message = dict(parse(peer.recv(1 << 20)))["MESSAGE"]
    assert message.startswith(b"Cannot\nTraceback")
    assert message.endswith(b"ValueError: the cause")


def test_without_a_journal_it_is_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with logging_to(tmp_path / "nothing") as logger:
        logger.warning("hello")
    assert "hello" in capfd.readouterr().err


def test_it_knows_its_own_stderr() -> None:
    status = os.fstat(2)
    assert journal.stderr_is_journal(f"{status.st_dev}:{status.st_ino}")
    for other in ("", f"{status.st_dev}:{status.st_ino + 1}", "x"):
        assert not journal.stderr_is_journal(other)


def test_a_line_of_text_is_one_line_whatever_is_in_it() -> None:
    formatter = journal.LineFormatter("%(levelname)s %(name)s: %(message)s")
    try:
        raise ValueError("x\nINFO sandboxd: forged")
    except ValueError:
        raised = sys.exc_info()
    record = logging.LogRecord(
        "sandboxd", logging.ERROR, "", 0, "cannot %s", ("x\nINFO sandboxd: forged\x1b[2J",), raised
    )
    first, *others = formatter.format(record).split("\n")
    assert first == "ERROR sandboxd: cannot x\\nINFO sandboxd: forged\\x1b[2J"
    assert others
    assert all(line.startswith("  ") for line in others)


@pytest.mark.parametrize(("name", "told"), [("debug", "di"), ("info", "i"), ("warning", "")])
def test_a_level_is_ours_alone(
    name: str, told: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = logging.getLogger("sandboxd")
    monkeypatch.setattr(ours, "level", ours.level)
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    journal.set_level(name)
    logging.getLogger("sandboxd.api").debug("d")
    logging.getLogger("sandboxd.api").info("i")
    logging.getLogger("aiohttp").debug("x")
    assert "".join(record.getMessage() for record in caplog.records) == told
