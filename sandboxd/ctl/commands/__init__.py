# SPDX-License-Identifier: Apache-2.0
"""One module for each command: `configure` adds its arguments, `execute` does it."""
