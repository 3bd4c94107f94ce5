# SPDX-License-Identifier: Apache-2.0
"""What ran in a period, as text or as one HTML page."""
