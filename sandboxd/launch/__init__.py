# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of its helper processes: spawner, builders, shims, supervisor."""
