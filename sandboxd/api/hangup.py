# SPDX-License-Identifier: Apache-2.0
"""Notices that a client is gone while nothing is read from it.

The server stops reading from a client whose input nobody takes; asyncio then watches its socket for
nothing at all, and learns of its end by reading only.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def ending_with_client(request: web.BaseRequest) -> Iterator[None]:
    """Close the connection, which cancels its handler, as soon as the other end is closed.

    Both directions of it: a client that only has nothing more to send waits for its answer.
    """
    transport = request.transport
    connection = None if transport is None else transport.get_extra_info("socket")
    if transport is None or connection is None:
        # Gone already: the cancellation is on its way.
        yield
        return
    loop = asyncio.get_running_loop()
    with select.epoll() as watch:
        # EPOLLHUP is always told; an epoll is readable while it has something to tell (epoll(7)).
        watch.register(connection.fileno(), 0)
        loop.add_reader(watch.fileno(), transport.abort)
        try:
            yield
        finally:
            loop.remove_reader(watch.fileno())
