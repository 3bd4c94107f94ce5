# SPDX-License-Identifier: Apache-2.0
"""Bytes in and out: nothing added, nothing lost, every cut told."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.contract.probes import output, path_of, printed, python, refused, start
from tests.harness import Daemon

MIB = 1 << 20
ALL_BYTES = bytes(range(256)) * 2
COUNT_STDIN = "import sys; print(len(sys.stdin.buffer.read()))"
PRINT_ALL_BYTES = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 2)"


def test_without_stdin_there_is_an_end_at_once(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], ["cat"], timeout_seconds=20)
    assert (ran["status"], ran["stdout"]) == ("EXITED", "")


@pytest.mark.parametrize("text", ["", "abc", "a\n", "\n\n", "\0", "ü\U0001f600", "x" * 300_000])
def test_stdin_arrives_as_it_is(daemon: Daemon, sandbox: Any, text: str) -> None:
    code = "import sys, hashlib; print(hashlib.sha1(sys.stdin.buffer.read()).hexdigest())"
    given = daemon.execute(sandbox["id"], python(code), stdin=text)
    in_argv = python(f"import hashlib; print(hashlib.sha1({text.encode()!r}[:99]).hexdigest())")
    if len(text) < 99:
        assert given["stdout"] == daemon.execute(sandbox["id"], in_argv)["stdout"]
    count = daemon.execute(sandbox["id"], python(COUNT_STDIN), stdin=text)
    assert count["stdout"] == f"{len(text.encode())}\n"


def test_stdin_in_base64_and_output_are_byte_exact(daemon: Daemon, sandbox: Any) -> None:
    data = ALL_BYTES * 300
    ran = daemon.execute(sandbox["id"], ["cat"], stdin_base64=base64.b64encode(data).decode())
    assert base64.b64decode(ran["stdout_base64"]) == data
    assert output(daemon, ran) == data


def test_a_program_that_does_not_read_its_stdin_ends_as_usual(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], "exec <&-; echo done", stdin="x" * (2 * MIB))
    assert (ran["status"], ran["exit_code"], ran["stdout"]) == ("EXITED", 0, "done\n")


def test_every_byte_comes_out_and_text_has_replacements(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], python(PRINT_ALL_BYTES))
    assert output(daemon, ran) == ALL_BYTES
    assert base64.b64decode(ran["stdout_base64"]) == ALL_BYTES
    assert ran["stdout"] == ALL_BYTES.decode("utf-8", "replace")
    assert ran["stdout_bytes"] == len(ALL_BYTES)


def test_clean_text_needs_no_base64(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], ["printf", "ü\\n"])
    assert ran["stdout"] == "ü\n"
    assert ran.get("stdout_base64") is None


def test_an_answer_has_the_first_mebibyte_and_output_the_rest(daemon: Daemon, sandbox: Any) -> None:
    # A two-byte character lies across the cut.
    code = f"import sys; sys.stdout.write('a' * ({MIB} - 1) + 'ü' + 'b' * 1000)"
    ran = daemon.execute(sandbox["id"], python(code))
    total = MIB + 1001
    assert (ran["stdout_bytes"], ran["stdout_truncated"]) == (total, False)
    assert (ran["stdout_inline_truncated"], ran["stderr_inline_truncated"]) == (True, False)
    assert len(ran["stdout"].encode()) <= MIB + 2
    assert ran["stdout"].startswith("a" * (MIB - 1))
    assert output(daemon, ran) == b"a" * (MIB - 1) + "ü".encode() + b"b" * 1000
    assert output(daemon, ran, offset=MIB + 1) == b"b" * 1000
    assert output(daemon, ran, offset=total) == b""


def test_exactly_a_mebibyte_is_whole(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], ["head", "-c", str(MIB), "/dev/zero"])
    assert len(ran["stdout"]) == MIB
    assert ran["stdout_inline_truncated"] is False


def test_an_offset_past_the_end_is_refused(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], ["printf", "abc"])
    answer = daemon.request("GET", f"{path_of(ran)}/output?offset=4")
    refused(answer, 416, "RANGE_NOT_SATISFIABLE")


@pytest.mark.parametrize("query", ["stream=stdin", "offset=-1", "offset=x", "offset=1e3", "a=b"])
def test_a_bad_query_of_output_is_refused(daemon: Daemon, sandbox: Any, query: str) -> None:
    ran = daemon.execute(sandbox["id"], ["true"])
    refused(daemon.request("GET", f"{path_of(ran)}/output?{query}"), 400, "INVALID_REQUEST")


def test_output_is_there_while_it_runs(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo first; echo second >&2; exec sleep 300")
    assert printed(daemon, running, b"first") == b"first\n"
    assert output(daemon, running, "stderr") in (b"", b"second\n")


def test_merged_output_keeps_the_order(daemon: Daemon, sandbox: Any) -> None:
    code = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    ran = daemon.execute(sandbox["id"], python(code), merge_output=True)
    assert ran["stdout"] == "".join(f"{n}\n" for n in range(2000))
    assert (ran["stderr"], ran["stderr_bytes"]) == ("", 0)


def test_streams_stay_apart_unless_merged(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], "echo o; echo e >&2")
    assert (ran["stdout"], ran["stderr"]) == ("o\n", "e\n")
    assert output(daemon, ran, "stderr") == b"e\n"


def test_the_last_words_of_many_short_runs_are_whole(daemon: Daemon, sandbox: Any) -> None:
    code = "import os; os.write(1, b'0123456789'); os._exit(3)"
    for _ in range(20):
        ran = daemon.execute(sandbox["id"], python(code))
        assert (ran["stdout"], ran["exit_code"]) == ("0123456789", 3)


def test_many_small_writes_are_all_counted(daemon: Daemon, sandbox: Any) -> None:
    code = "import os\nfor n in range(100_000): os.write(1, b'x')"
    ran = daemon.execute(sandbox["id"], python(code))
    assert ran["stdout_bytes"] == len(ran["stdout"]) == 100_000
