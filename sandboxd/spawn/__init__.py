# SPDX-License-Identifier: Apache-2.0
"""Processes: the spawner, the shims, and the daemon's side of both."""
