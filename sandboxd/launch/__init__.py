# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of its helpers: spawner, builders, shims, supervisor."""
