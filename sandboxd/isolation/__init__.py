# SPDX-License-Identifier: Apache-2.0
"""What stands between a command and the host."""
