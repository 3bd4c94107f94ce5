# SPDX-License-Identifier: Apache-2.0
"""Messages and files between the daemon and its helper processes. Standard library only."""
