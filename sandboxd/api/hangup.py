# SPDX-License-Identifier: Apache-2.0
"""Notices that a client is gone while reading from the client is paused.

The server pauses reading while a program does not take the client's input; asyncio then watches the
socket for no event at all, and learns of a closed connection by reading only.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def ending_with_client(request: web.BaseRequest) -> Iterator[None]:
    """Close the connection, and cancel the handler, once the client closed both directions."""
    transport = request.transport
    connection = None if transport is None else transport.get_extra_info("socket")
    if transport is None or connection is None:
        # The connection is lost already: the cancellation is on the way.
        yield
        return
    loop = asyncio.get_running_loop()
    with select.epoll() as watch:
        # EPOLLHUP needs no registration; an epoll descriptor with events is readable (epoll(7)).
        watch.register(connection.fileno(), 0)
        loop.add_reader(watch.fileno(), transport.abort)
        try:
            yield
        finally:
            loop.remove_reader(watch.fileno())
