# SPDX-License-Identifier: Apache-2.0
"""What the engine asks of the world. The consumer owns these; the doors and schemes fit them."""
