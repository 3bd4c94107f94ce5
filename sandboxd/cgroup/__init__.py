# SPDX-License-Identifier: Apache-2.0
"""The kernel's cgroup v2 files: read by all, written only below a delegated scope."""
