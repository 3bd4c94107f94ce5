# SPDX-License-Identifier: Apache-2.0
"""The systemd machine for tests: Debian in QEMU, built and driven from a checkout.

`recipe` says what is in it, `image`, `initrd` and `emulator` build it, `qemu` starts it. `agent`,
`port` and `command` run inside; `channel` is the host's end, `wire` and `trees` are used by both.
`machine` is one that runs, `session` one command in one of its own, `cli` the command line:
`python3 -m tests.machine --help`.

No status of a command is ever concluded from silence: it comes from inside, with the request's
nonce, or the exit status is 98 (deadline) or 99 (the machine).
"""
