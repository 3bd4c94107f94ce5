# SPDX-License-Identifier: Apache-2.0
"""What every door needs of the operating system. Standard library only: the shim imports it."""
