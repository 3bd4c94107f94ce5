# SPDX-License-Identifier: Apache-2.0
"""Man pages and shell completion, made from the program's parsers, routes and settings."""
