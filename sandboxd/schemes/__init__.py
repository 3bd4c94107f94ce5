# SPDX-License-Identifier: Apache-2.0
"""The two ways to hold sandboxes, and the choice between them."""
