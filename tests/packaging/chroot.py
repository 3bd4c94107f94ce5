# SPDX-License-Identifier: Apache-2.0
"""A minimal root of Debian or Ubuntu that reaches package registries exactly as this host does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
NOT_COPIED = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "build", "dist")
# What pip, apt and OpenSSL read from the environment to find their way out.
NETWORK_VARIABLES = re.compile(r"PIP_.*|SSL_CERT_.*|REQUESTS_CA_BUNDLE|.*_proxy", re.IGNORECASE)
# The same from files: name resolution and pip's settings.
NETWORK_FILES = ("etc/hosts", "etc/resolv.conf", "etc/pip.conf")
# Suite of Ubuntu -> package of Debian that has the keys of its archive.
KEYRINGS = {"noble": "ubuntu-keyring"}
KEYRINGS_FROM = "trixie"
LOCAL_CERTIFICATES = "usr/local/share/ca-certificates"
# Mounts live and end in a namespace of their own; sh stays PID 1 there and reaps. The root is the
# namespace's own, as every host's is: below a mere chroot(2) none can be built for a sandbox.
ENTER = """\
root=$1 directory=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
cd "$root"
pivot_root . .
umount -l .
cd /
env --chdir="$directory" "$@"
exit $?
"""


@dataclass(frozen=True, slots=True)
class Chroot:
    path: Path
    checkout = "/srv/sandboxd"

    @classmethod
    def build(cls, suite: str, path: Path) -> Chroot:
        """Make a root of `suite` with python3, ca-certificates and the checkout, no more."""
        # Of Ubuntu's archive apt is not among the required ones.
        options = ["--variant=minbase", "--include=apt,python3,ca-certificates"]
        with tempfile.TemporaryDirectory() as scratch:
            # apt checks signatures as a user of its own.
            os.chmod(scratch, 0o755)  # noqa: S103
            if suite in KEYRINGS:
                options.append(f"--keyring={_keyring(KEYRINGS[suite], Path(scratch, 'keyring'))}")
                options.append("--components=main,universe")
            _checked(["mmdebstrap", "--quiet", *options, suite, str(path)])
        root = cls(path)
        root._take_over_network()
        shutil.copytree(
            CHECKOUT,
            path / cls.checkout.lstrip("/"),
            symlinks=True,
            ignore=shutil.ignore_patterns(*NOT_COPIED),
        )
        return root

    def _take_over_network(self) -> None:
        for name in NETWORK_FILES:
            if Path("/", name).exists():
                shutil.copyfile(Path("/", name), self.path / name)
        acquire = _checked(["apt-config", "dump", "Acquire"])
        (self.path / "etc/apt/apt.conf.d/90host").write_text(acquire)
        if Path("/", LOCAL_CERTIFICATES).is_dir():
            shutil.copytree(
                Path("/", LOCAL_CERTIFICATES), self.path / LOCAL_CERTIFICATES, dirs_exist_ok=True
            )
            done = self.run("update-ca-certificates", directory="/")
            assert done.returncode == 0, done.stderr

    def run(
        self, *command: str, directory: str = checkout, seconds: float = 900
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root in the root, with nothing of this host's but the network."""
        network = {
            name: value for name, value in os.environ.items() if NETWORK_VARIABLES.fullmatch(name)
        }
        plain = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-e", "-c", ENTER]
        return subprocess.run(
            [*enter, "sh", str(self.path), directory, *command],
            env=network | plain,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )


def _keyring(package: str, tree: Path) -> Path:
    """Unpack `package` below `tree`; return the directory of its keys."""
    extract = ["mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--format=directory"]
    _checked([*extract, f"--include={package}", KEYRINGS_FROM, str(tree)])
    return tree / "usr/share/keyrings"


def _checked(command: list[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{command[0]} exited with {done.returncode}:\n{done.stderr}"
    return done.stdout
