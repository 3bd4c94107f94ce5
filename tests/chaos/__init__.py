# SPDX-License-Identifier: Apache-2.0
"""Kills the daemon and its spawner under load, again and again, and looks for anything lost."""
