# SPDX-License-Identifier: Apache-2.0
"""Holds limits on the sum over a sandbox's processes where no cgroup does: the rlimit scheme."""
