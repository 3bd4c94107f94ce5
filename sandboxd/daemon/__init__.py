# SPDX-License-Identifier: Apache-2.0
"""The daemon's process: settings, wiring, log lines."""
