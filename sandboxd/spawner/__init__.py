# SPDX-License-Identifier: Apache-2.0
"""The spawner's process and the builders that it forks."""
