# SPDX-License-Identifier: Apache-2.0
"""sandboxd: run untrusted commands on this host under limits that hold for their sum."""

__version__ = "0.1.0"
