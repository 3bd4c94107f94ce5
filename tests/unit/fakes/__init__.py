# SPDX-License-Identifier: Apache-2.0
"""The world as the engine sees it, in memory, with faults on demand.

Every fake writes down what it holds, so that a test can ask what is left.
"""
