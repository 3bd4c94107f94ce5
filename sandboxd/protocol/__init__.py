# SPDX-License-Identifier: Apache-2.0
"""What the daemon and its helper processes tell each other. Standard library only."""
