# SPDX-License-Identifier: Apache-2.0
"""What `test` runs in a machine of each suite."""

from __future__ import annotations

from .recipe import OUTPUT_DIRECTORY

# An emulated machine is slow: what guards against a hang must not end what only takes its time.
_PYTEST = ["python3", "-m", "pytest", "-p", "no:cacheprovider", "-o", "timeout=400"]
_PYTEST += ["--durations=20", "--durations-min=10"]
# With daemons and file systems of their own.
_BESIDE = [
    f"tests/system/test_{name}.py"
    for name in ("chaos", "disk_limits", "flat", "io_devices", "own_disks", "roots")
]
# Debian 12 and Ubuntu 24.04, whose own libraries are too old: the package brings its own, and the
# checkout is run with them. The package's life, and the contract.
BUNDLED_SUITES = ("bookworm", "noble")
_OVER_SYSTEMD = "not rlimit and not fakes"
_OLDER = {
    "package": ["tests/system/test_package.py"],
    # Debian 12's pytest-xdist (3.1) does not know worksteal.
    "contract": ["tests/contract", "tests/unit/systemd", "-n", "2", "-k", _OVER_SYSTEMD],
}
# Suite -> name of the report -> arguments. First, alone, what spoils the host: it restarts systemd
# and the bus and sets the clock. Then the contract over systemd and what the documentation tells
# people to do, two tests at a time; the other scheme and the fakes are tested where they are at
# home, and so are the escapes at the levels that every host has.
_RUNS = {
    "trixie": {
        "system": ["tests/system", *(f"--ignore={path}" for path in _BESIDE)],
        "contract": [
            "tests/contract", "tests/unit/systemd", "tests/integration/test_docs.py", *_BESIDE,
            "-n", "2", "--dist", "worksteal",
            "-k", f"{_OVER_SYSTEMD} and not (test_attempt and (systemd-basic or systemd-standard))",
        ],
    },
    **dict.fromkeys(BUNDLED_SUITES, _OLDER),
}  # fmt: skip
# Left to the full count (SANDBOXD_SOAK=1): minutes for what other tests of every run show in parts.
# The package's own tests (debian/tests) do by Debian's tool what the rest of their file does; what
# the documentation tells people to do is run on the bare host, as are tests that nothing grows and
# of much output; test_programs has two private daemons beside each other; what an execution costs
# systemd among many sandboxes is a figure.
FULL_COUNT_ALONE = (
    "tests/system/test_package.py::test_what_debian_would_test",
    "tests/integration/test_docs.py",
    "tests/system/test_flat.py",
    "tests/system/test_ends.py::test_a_gigabyte_of_output_leaves_the_daemon_flat",
    "tests/system/test_beside.py",
    "tests/system/test_scale.py",
)
_LIBRARIES = r"""
python=$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
dpkg-deb --extract build/deb/sandboxd_*~bundled_*.deb /opt/bundled
echo "/opt/bundled/usr/lib/sandboxd/lib/$python/site-packages" \
    > "/usr/local/lib/$python/dist-packages/bundled.pth"
exec "$@"
"""


def commands(suite: str, given: list[str], *, named: bool, is_full: bool) -> list[list[str]]:
    """Each of the suite's runs with pytest's arguments `given`; a single one if they name tests.

    is_full: whether long tests are run at their full count.
    """
    runs = {"named": []} if named else _RUNS[suite]
    if suite not in BUNDLED_SUITES and not (named or is_full):
        given = [*(f"--deselect={path}" for path in FULL_COUNT_ALONE), *given]
    needed = ["sh", "-euc", _LIBRARIES, "sh"] if suite in BUNDLED_SUITES else []
    return [
        [*needed, *_PYTEST, f"--junit-xml={OUTPUT_DIRECTORY}/{name}.xml", *own, *given]
        for name, own in runs.items()
    ]
