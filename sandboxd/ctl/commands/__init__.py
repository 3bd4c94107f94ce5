# SPDX-License-Identifier: Apache-2.0
"""One module for each command: `configure` adds the arguments, `execute` runs the command."""
