# SPDX-License-Identifier: Apache-2.0
"""Values and decisions: what sandboxd counts, names, allows and judges. Pure."""
