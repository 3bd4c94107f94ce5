# SPDX-License-Identifier: Apache-2.0
"""A sandbox's directories on disk."""
