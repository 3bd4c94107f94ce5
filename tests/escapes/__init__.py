# SPDX-License-Identifier: Apache-2.0
"""Attempts to get out of a sandbox, as data: what each does, and what must come of it."""
