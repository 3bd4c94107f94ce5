# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 without I/O: the bytes of a request, and a parser of the answer.

http.client would import email and ssl, which takes longer than a short command of sandboxctl.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_HEAD_BYTES = 64 << 10
_MAX_LINE_BYTES = 8 << 10
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class ProtocolError(Exception):
    """Raised when the bytes received are not an HTTP/1.1 answer."""


class Ended(ProtocolError):
    """Raised when the connection ended before the answer was complete."""


def quote(text: str, safe: str = "") -> str:
    """Percent-encode `text`; surrogates of os.fsdecode become the original bytes."""
    kept = _UNRESERVED.union(safe.encode())
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in data)


def encode_query(query: Mapping[str, object]) -> str:
    """Return `?name=value&...`, or "" for an empty query."""
    pairs = (f"{quote(name)}={quote(str(value))}" for name, value in query.items())
    return f"?{'&'.join(pairs)}" if query else ""


def request_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a request up to the body. Raises ValueError for a line break."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, "", ""])
    if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1:
        raise ValueError("a line break in a request's header")
    return head.encode("latin-1")


class AnswerParser:
    """Parser of one answer: `feed` received bytes (b"" at the end), `take` body bytes."""

    def __init__(self, *, has_no_body: bool = False) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = False
        self.is_complete = False
        self._has_no_body = has_no_body
        self._buffer = bytearray()
        self._body = bytearray()
        self._is_chunked = False
        # Bytes left in the body or chunk; None = to the end of the connection.
        self._left: int | None = None
        self._is_within_chunk = False

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises ProtocolError."""
        if not data:
            self._end()
            return
        self._buffer += data
        if not self.has_head:
            self._read_head()
        if self.has_head and not self.is_complete:
            if self._is_chunked:
                self._read_chunks()
            else:
                self._read_plain()

    def take(self) -> bytes:
        """Return the body bytes received since the last call."""
        body = bytes(self._body)
        self._body.clear()
        return body

    def _end(self) -> None:
        if self.has_head and self._left is None and not self._is_chunked:
            self.is_complete = True
        if not self.is_complete:
            raise Ended("the connection ended before the answer did")

    def _read_head(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD_BYTES:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise ProtocolError("the answer's head does not end")
            if self._buffer and not b"HTTP/1.".startswith(self._buffer[:7]):
                raise ProtocolError("not HTTP")
            return
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        version, _, rest = lines[0].partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or len(code) != 3 or not code.isdigit():
            raise ProtocolError("not HTTP")
        if code[0] == "1":
            # An interim answer (RFC 9110, 15.2) precedes the final answer.
            self._read_head()
            return
        self.status = int(code)
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.has_head = True
        self._frame()

    def _frame(self) -> None:
        """Find out how the body ends (RFC 9112, 6.3)."""
        length = self.headers.get("content-length")
        if self._has_no_body or self.status in (204, 304):
            self.is_complete = True
        elif self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._is_chunked = True
        elif length is not None:
            if not length.isascii() or not length.isdigit() or len(length) > 19:
                raise ProtocolError("a length that is no number")
            self._left = int(length)
            self.is_complete = self._left == 0

    def _read_plain(self) -> None:
        self._read_bytes()
        self.is_complete = self._left == 0

    def _read_bytes(self) -> None:
        part = self._buffer if self._left is None else self._buffer[: self._left]
        self._body += part
        if self._left is not None:
            self._left -= len(part)
        del self._buffer[: len(part)]

    def _read_chunks(self) -> None:
        while self._buffer and not self.is_complete:
            if self._left:
                self._read_bytes()
                continue
            end = self._buffer.find(b"\r\n")
            if end < 0:
                if len(self._buffer) > _MAX_LINE_BYTES:
                    raise ProtocolError("a chunk's head does not end")
                return
            line = self._buffer[:end].decode("latin-1")
            del self._buffer[: end + 2]
            self._read_line(line)

    def _read_line(self, line: str) -> None:
        """Parse a line between chunks: a chunk's size, the end of a chunk's data, or a trailer."""
        if self._is_within_chunk:
            if line:
                raise ProtocolError("a chunk longer than it said")
            self._is_within_chunk = False
        elif self._left == 0 and self._is_last:
            self.is_complete = not line
        else:
            size = line.partition(";")[0].strip()
            if not size or len(size) > 15 or set(size.lower()) - set("0123456789abcdef"):
                raise ProtocolError("a chunk without a size")
            self._left = int(size, 16)
            self._is_last = self._left == 0
            self._is_within_chunk = not self._is_last

    _is_last = False
