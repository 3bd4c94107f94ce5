# SPDX-License-Identifier: Apache-2.0
"""State that outlives the daemon: records, history, idempotency keys."""
