# SPDX-License-Identifier: Apache-2.0
"""The shim: the trusted parent of one execution, in a process of its own."""
