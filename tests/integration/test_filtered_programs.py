# SPDX-License-Identifier: Apache-2.0
"""Everyday programs under each system-call filter, and nothing else of a sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd.isolation.seccomp import Filter
from tests.conftest import requires_program
from tests.harness import ROOT

pytestmark = pytest.mark.usefixtures("requires_filter")

_ENTER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from sandboxd.isolation import seccomp
from sandboxd.osutil import linux
linux.set_no_new_privs()
seccomp.load(seccomp.Filter(sys.argv[2]))
os.execvp(sys.argv[3], sys.argv[3:])
"""
_PYTHON = """
import asyncio, concurrent.futures, multiprocessing, os, socket, subprocess
from multiprocessing import shared_memory
import threading

def double(number): return 2 * number

async def child():
    process = await asyncio.create_subprocess_exec("echo", "async", stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode()

async def fetch():
    server = await asyncio.start_server(lambda r, w: (w.write(b"served"), w.close()), "127.0.0.1")
    reader, _ = await asyncio.open_connection(*server.sockets[0].getsockname())
    return (await reader.read()).decode()

if __name__ == "__main__":
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        print(sum(threads.map(double, range(100))))
    print(subprocess.check_output(["echo", "child"], text=True).strip())
    print(subprocess.check_output("echo shell | cat", shell=True, text=True).strip())
    print(asyncio.run(child()).strip(), asyncio.run(fetch()))
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, sum(pool.map(double, range(10))))
    memory = shared_memory.SharedMemory(create=True, size=4096)
    memory.close(); memory.unlink()
    # A minimal root has no /etc/hosts, and then only numbers are names.
    name = "localhost" if os.path.exists("/etc/hosts") else "127.0.0.1"
    print(len(socket.getaddrinfo(name, 80, flags=socket.AI_ADDRCONFIG)) > 0)
"""
_PYTHON_SAYS = "9900\nchild\nshell\nasync served\nfork 90\nspawn 90\nforkserver 90\nTrue\n"
_NODE = """
const { Worker, isMainThread, parentPort } = require("worker_threads");
const { execFileSync, spawnSync } = require("child_process");
const http = require("http"), os = require("os"), fs = require("fs");
if (!isMainThread) { parentPort.postMessage("worker"); return; }
new Worker(__filename).on("message", (text) => {
  console.log(text, execFileSync("echo", ["child"]).toString().trim());
  try { os.networkInterfaces(); } catch (error) { console.log(error.code); }
  fs.watch(".").close();
  const server = http.createServer((q, a) => a.end("fetched")).listen(0, "127.0.0.1", async () => {
    const answer = await fetch("http://127.0.0.1:" + server.address().port);
    console.log(await answer.text());
    server.close();
  });
});
"""
_C = """
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static void *say(void *text) { puts(text); fflush(stdout); return 0; }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, say, "thread");
    pthread_join(thread, 0);
    if (fork() == 0) { puts("fork"); return 0; }
    wait(0);
    return 0;
}
"""
_JAVA = """
public class Hello {
    public static void main(String[] words) throws Exception {
        Thread thread = new Thread(() -> System.out.println("thread"));
        thread.start();
        thread.join();
        Process child = new ProcessBuilder("echo", "child").inheritIO().start();
        child.waitFor();
        java.net.NetworkInterface.networkInterfaces().count();
    }
}
"""
_GIT = """
set -e
git init -q one; cd one
git config user.email a@b; git config user.name n
echo text > file; git add file; git commit -qm first; git gc -q
cd ..; git clone -q one two; cat two/file
"""


def run(kind: Filter, directory: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(directory), "GOCACHE": str(directory / "go")}
    return subprocess.run(
        [sys.executable, "-c", _ENTER, str(ROOT), kind.value, *argv],
        cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=55,
    )  # fmt: skip


def says(kind: Filter, directory: Path, *argv: str) -> str:
    done = run(kind, directory, *argv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def needs(program: str) -> pytest.MarkDecorator:
    """For runtimes, which are too large to be a prerequisite of all tests."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"no {program} here")


every = pytest.mark.parametrize("kind", Filter)


@every
def test_python(kind: Filter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PYTHON)
    assert says(kind, tmp_path, sys.executable, "program.py") == _PYTHON_SAYS


@every
@needs("node")
def test_node(kind: Filter, tmp_path: Path) -> None:
    (tmp_path / "program.js").write_text(_NODE)
    assert says(kind, tmp_path, "node", "program.js") == "worker child\nERR_SYSTEM_ERROR\nfetched\n"


@every
@needs("gcc")
def test_gcc_and_what_it_makes(kind: Filter, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(_C)
    says(kind, tmp_path, "gcc", "-pthread", "-o", "program", "program.c")
    assert says(kind, tmp_path, "./program") == "thread\nfork\n"


@every
@needs("java")
def test_java(kind: Filter, tmp_path: Path) -> None:
    (tmp_path / "Hello.java").write_text(_JAVA)
    assert says(kind, tmp_path, "java", "-Xmx128m", "Hello.java") == "thread\nchild\n"


@every
def test_git(kind: Filter, tmp_path: Path) -> None:
    requires_program("git")
    assert says(kind, tmp_path, "sh", "-c", _GIT) == "text\n"


_GO = """
package main

import ("fmt"; "io"; "net"; "net/http"; "net/http/httptest")

func main() {
    _, failed := net.Interfaces()
    found, _ := net.LookupHost("localhost")
    server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
        fmt.Fprint(w, "served")
    }))
    answer, _ := http.Get(server.URL)
    body, _ := io.ReadAll(answer.Body)
    fmt.Println(failed != nil, len(found) > 0, string(body))
}
"""


@every
@needs("go")
@pytest.mark.timeout(360)
def test_go_serves_and_resolves_without_a_list_of_interfaces(kind: Filter, tmp_path: Path) -> None:
    (tmp_path / "net.go").write_text(_GO)
    build = ["go", "build", "-o", "net", "net.go"]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(build, cwd=tmp_path, env=environment, check=True, timeout=300)
    assert says(kind, tmp_path, "./net") == "true true served\n"


@every
@needs("go")
def test_a_program_written_in_go(kind: Filter, tmp_path: Path) -> None:
    assert says(kind, tmp_path, "go", "version").startswith("go version")
    assert says(kind, tmp_path, "go", "env", "GOCACHE").strip() == str(tmp_path / "go")


def test_a_tracer_works_up_to_standard_only(tmp_path: Path) -> None:
    requires_program("strace")
    assert run(Filter.COMMON, tmp_path, "strace", "-f", "-o", "log", "true").returncode == 0
    assert run(Filter.STRICT, tmp_path, "strace", "-f", "-o", "log", "true").returncode != 0


@every
def test_addresses_may_be_made_the_same_each_time(kind: Filter, tmp_path: Path) -> None:
    code = "print([x for x in open('/proc/self/maps') if 'stack' in x][0].split()[0])"
    seen = {says(kind, tmp_path, "setarch", "-R", sys.executable, "-c", code) for _ in range(3)}
    assert len(seen) == 1
