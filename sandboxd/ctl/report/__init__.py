# SPDX-License-Identifier: Apache-2.0
"""Reports on the executions of a period, as text or as one HTML page."""
