# SPDX-License-Identifier: Apache-2.0
"""The JSON on the socket as pydantic models: what a request may hold, what an answer holds."""
