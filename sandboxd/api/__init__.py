# SPDX-License-Identifier: Apache-2.0
"""HTTP on the Unix socket: routes, access, answers."""
