# SPDX-License-Identifier: Apache-2.0
"""HTTP client for the daemon; standard library only."""
