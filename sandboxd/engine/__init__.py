# SPDX-License-Identifier: Apache-2.0
"""Sandboxes and executions as they live: decides, asks the ports, keeps the records."""
