# SPDX-License-Identifier: Apache-2.0
"""Language runtimes start, size themselves by their sandbox, and end with the right verdict."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.test_memory import is_oom
from tests.harness import ROOT, Daemon

WHERE = "/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin:/usr/lib/go/bin"
HEAP_BOMB = """
import java.util.ArrayList;
public class Bomb {
    public static void main(String[] words) {
        ArrayList<byte[]> held = new ArrayList<>();
        while (true) { held.add(new byte[1 << 20]); }
    }
}
"""
HEAP_SIZE = """
public class Size {
    public static void main(String[] words) {
        System.out.println(Runtime.getRuntime().maxMemory());
    }
}
"""
FETCH = """
const http = require("http");
const memory = new WebAssembly.Memory({initial: 16, maximum: 65536});
const server = http.createServer((q, a) => a.end("fetched")).listen(0, "127.0.0.1", async () => {
  const answer = await fetch("http://127.0.0.1:" + server.address().port);
  console.log(await answer.text(), memory.buffer.byteLength);
  server.close();
});
"""
GO_HELLO = """
package main
import "fmt"
func main() { fmt.Println("built") }
"""


def reachable(name: str) -> str | None:
    """Its path, if a sandbox may run it."""
    found = shutil.which(name, path=WHERE)
    return None if found is None or Path(found).resolve().is_relative_to("/root") else found


def program(name: str) -> str:
    """The path of a program that is there, or its test would not be."""
    found = reachable(name)
    assert found is not None
    return found


@pytest.fixture
def half_gib(create: Create) -> Any:
    return create(limits={"memory_bytes": "512M", "pids": 512}, env={"PATH": WHERE})


def write(daemon: Daemon, sandbox: Any, name: str, text: str) -> None:
    ran = daemon.execute(sandbox["id"], ["sh", "-c", f"cat > {name}"], stdin=text)
    assert ran["exit_code"] == 0


def test_a_jvm_s_heap_bomb_is_an_oom_kill(daemon: Daemon, half_gib: Any) -> None:
    java = program("java")
    write(daemon, half_gib, "Bomb.java", HEAP_BOMB)
    argv = [java, "-Xmx4g", "Bomb.java"]
    ran = daemon.execute(half_gib["id"], argv, timeout_seconds=50)
    assert is_oom(ran, "sandbox")


def test_a_jvm_sizes_its_heap_by_the_sandbox(daemon: Daemon, half_gib: Any) -> None:
    java = program("java")
    write(daemon, half_gib, "Size.java", HEAP_SIZE)
    ran = daemon.execute(half_gib["id"], [java, "Size.java"], timeout_seconds=50)
    assert ran["status"] == "EXITED", ran
    assert int(ran["stdout"]) <= 512 << 20


def test_javac_says_nothing_of_its_own(daemon: Daemon, half_gib: Any) -> None:
    write(daemon, half_gib, "Size.java", HEAP_SIZE)
    javac = program("javac")
    ran = daemon.execute(half_gib["id"], [javac, "Size.java"], timeout_seconds=50)
    assert (ran["exit_code"], ran["stdout"], ran["stderr"]) == (0, "", "")


def test_node_fetches_and_has_web_assembly(daemon: Daemon, half_gib: Any) -> None:
    node = program("node")
    ran = daemon.execute(half_gib["id"], [node, "-e", FETCH], timeout_seconds=50)
    assert (ran["status"], ran["stdout"]) == ("EXITED", "fetched 1048576\n"), ran


LISTING = """
import {networkInterfaces} from "node:os";
import os from "node:os";
console.log(networkInterfaces(), os.networkInterfaces());
"""


def test_node_starts_without_interfaces_as_the_manual_says(daemon: Daemon, half_gib: Any) -> None:
    text = (ROOT / "docs/isolation.md").read_text()
    [recipe] = re.findall(r"^export NODE_OPTIONS=.*?(?=^```)", text, re.DOTALL | re.MULTILINE)
    write(daemon, half_gib, "list.mjs", LISTING)
    command = f"{program('node')} list.mjs"
    plain = daemon.execute(half_gib["id"], command, timeout_seconds=50)
    assert "ERR_SYSTEM_ERROR" in plain["stderr"]
    ran = daemon.execute(half_gib["id"], f"{recipe}\n{command}", timeout_seconds=50)
    assert (ran["exit_code"], ran["stdout"]) == (0, "{} {}\n"), ran


def test_a_node_bomb_does_not_end_well(daemon: Daemon, half_gib: Any) -> None:
    """It stops at its own heap limit or is killed at ours; buffers are outside of its heap."""
    node = program("node")
    code = "const held = []; while (true) held.push(Buffer.alloc(1 << 20, 1));"
    ran = daemon.execute(half_gib["id"], [node, "-e", code], timeout_seconds=50)
    assert is_oom(ran, "sandbox")


@pytest.mark.timeout(330)
def test_go_builds(daemon: Daemon, create: Create) -> None:
    go = program("go")
    made = create(limits={"memory_bytes": "1G", "pids": 512}, env={"PATH": WHERE})
    write(daemon, made, "hello.go", GO_HELLO)
    script = f"{go} build -o hello hello.go && ./hello"
    ran = daemon.execute(made["id"], script, env={"GOFLAGS": "-mod=mod"}, timeout_seconds=300)
    assert (ran["status"], ran["stdout"]) == ("EXITED", "built\n"), ran


def test_rust_builds(daemon: Daemon, create: Create) -> None:
    rustc = program("rustc")
    made = create(limits={"memory_bytes": "1G", "pids": 512}, env={"PATH": WHERE})
    write(daemon, made, "hello.rs", 'fn main() { println!("built"); }')
    ran = daemon.execute(made["id"], f"{rustc} hello.rs && ./hello", timeout_seconds=50)
    assert (ran["status"], ran["stdout"]) == ("EXITED", "built\n"), ran


def test_gcc_builds(daemon: Daemon, half_gib: Any) -> None:
    gcc = program("gcc")
    write(daemon, half_gib, "hello.c", '#include <stdio.h>\nint main(void) { puts("built"); }')
    ran = daemon.execute(half_gib["id"], f"{gcc} hello.c -o hello && ./hello", timeout_seconds=50)
    assert (ran["status"], ran["stdout"]) == ("EXITED", "built\n"), ran


def test_git_keeps_history_and_serves_it_locally(daemon: Daemon, half_gib: Any) -> None:
    git = program("git")
    script = f"""set -e
{git} init -q repository && cd repository && echo kept > file && {git} add file
{git} -c user.name=a -c user.email=a@b commit -qm first
cd .. && {git} clone -q file://$PWD/repository copy && cat copy/file"""
    ran = daemon.execute(half_gib["id"], script, timeout_seconds=50)
    assert (ran["exit_code"], ran["stdout"]) == (0, "kept\n"), ran


def test_a_python_venv_and_processes_that_share_memory(daemon: Daemon, half_gib: Any) -> None:
    python3 = program("python3")
    code = """
import multiprocessing as m
if __name__ == "__main__":
    print(sum(m.Pool(2).map(abs, [-1, -2])), m.Value("i", 4).value)
"""
    write(daemon, half_gib, "pool.py", code)
    script = f"{python3} -m venv --without-pip venv && venv/bin/python pool.py"
    ran = daemon.execute(half_gib["id"], script, timeout_seconds=50)
    assert (ran["exit_code"], ran["stdout"]) == (0, "3 4\n"), ran


# Where a runtime is installed; a host without it has nothing to show here.
NEEDS = {
    "test_a_jvm_s_heap_bomb_is_an_oom_kill": "java",
    "test_a_jvm_sizes_its_heap_by_the_sandbox": "java",
    "test_javac_says_nothing_of_its_own": "javac",
    "test_node_fetches_and_has_web_assembly": "node",
    "test_node_starts_without_interfaces_as_the_manual_says": "node",
    "test_a_node_bomb_does_not_end_well": "node",
    "test_go_builds": "go",
    "test_rust_builds": "rustc",
    "test_gcc_builds": "gcc",
    "test_git_keeps_history_and_serves_it_locally": "git",
    "test_a_python_venv_and_processes_that_share_memory": "python3",
}
for _test, _program in NEEDS.items():
    if reachable(_program) is None:
        del globals()[_test]
