# SPDX-License-Identifier: Apache-2.0
"""systemd over D-Bus, and sd_notify."""
