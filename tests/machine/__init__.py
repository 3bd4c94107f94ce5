# SPDX-License-Identifier: Apache-2.0
"""The systemd machine for tests: Debian in QEMU, built and driven from a checkout.

`recipe` says what is in it, `image` builds it, `qemu` starts it, `wire` and `agent` talk, `machine`
keeps one running, `cli` is the command. `python3 -m tests.machine --help` shows the rest.
"""
