# SPDX-License-Identifier: Apache-2.0
"""Parses a tar stream as the bytes arrive. Pure, and bounded whatever the stream says.

The standard library's reader needs a file and waits for bytes, and believes the sizes in extended
headers. Formats: ustar, GNU and pax (tar(5)).
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

from sandboxd.errors import InvalidRequest

_BLOCK = tarfile.BLOCKSIZE
# Holds the longest path and link target many times over.
MAX_EXTENDED_BYTES = 64 << 10
_ENCODING, _ERRORS = "utf-8", "surrogateescape"
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
# Keys of extended headers that are kept until the member comes; any number may be dropped.
_KEPT = ("path", "linkpath", "size")
_SPARSE = "GNU.sparse."


class TarStream:
    """A parser: `feed` takes bytes and yields members and contents."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._content_left = 0
        self._padding = 0
        self._extension: tarfile.TarInfo | None = None
        self._overrides: dict[str, str] = {}
        # Whether a member must follow, even after a header without kept keys.
        self._is_extended = False
        self.has_ended = False

    def feed(self, data: bytes) -> Iterator[tarfile.TarInfo | bytes]:
        """Yield each member, then the content in pieces. Raises InvalidRequest."""
        self._buffer += data
        while self._buffer and not self.has_ended:
            if self._content_left:
                yield self._take(min(self._content_left, len(self._buffer)))
            elif self._padding:
                dropped = min(self._padding, len(self._buffer))
                del self._buffer[:dropped]
                self._padding -= dropped
            elif self._extension is not None:
                size = self._extension.size
                if len(self._buffer) < size:
                    return
                self._extend(self._extension, bytes(self._buffer[:size]))
                del self._buffer[:size]
                self._padding = -size % _BLOCK
                self._extension = None
            else:
                if len(self._buffer) < _BLOCK:
                    return
                member = self._header(bytes(self._buffer[:_BLOCK]))
                del self._buffer[:_BLOCK]
                if member is not None:
                    yield member
        if self.has_ended:
            self._buffer.clear()

    def check_complete(self) -> None:
        """Raise InvalidRequest where the stream broke off in the middle."""
        rest = self._content_left or self._padding or self._buffer or self._extension
        if not self.has_ended and (rest or self._is_extended):
            raise InvalidRequest("cannot unpack the archive: it breaks off in the middle")

    def _take(self, size: int) -> bytes:
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._content_left -= size
        return piece

    def _header(self, block: bytes) -> tarfile.TarInfo | None:
        if not block.strip(b"\0"):
            self.has_ended = True
            return None
        try:
            info = tarfile.TarInfo.frombuf(block, _ENCODING, _ERRORS)
        except tarfile.HeaderError as exc:
            raise InvalidRequest(f"cannot unpack the archive: {exc}, or it is no tar") from exc
        if info.size < 0:
            raise InvalidRequest("cannot unpack the archive: a size is negative")
        if info.type in (*_EXTENDED, *_LONG):
            if info.size > MAX_EXTENDED_BYTES:
                raise InvalidRequest(
                    f"cannot unpack the archive: an extended header has {info.size} bytes, and "
                    f"the most is {MAX_EXTENDED_BYTES}"
                )
            self._extension = info
            return None
        self._override(info)
        self._content_left = info.size if info.isreg() else 0
        self._padding = -self._content_left % _BLOCK
        return info

    def _override(self, info: tarfile.TarInfo) -> None:
        overrides, self._overrides, self._is_extended = self._overrides, {}, False
        info.name = overrides.get("path", info.name)
        info.linkname = overrides.get("linkpath", info.linkname)
        if "size" in overrides:
            info.size = _number(overrides["size"])
        if _SPARSE in overrides:
            info.type = tarfile.GNUTYPE_SPARSE

    def _extend(self, header: tarfile.TarInfo, body: bytes) -> None:
        self._is_extended |= header.type != tarfile.XGLTYPE
        if header.type in _LONG:
            key = "path" if header.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
            self._overrides[key] = body.partition(b"\0")[0].decode(_ENCODING, _ERRORS)
        elif header.type != tarfile.XGLTYPE:
            for key, value in _pax_records(body):
                if key in _KEPT:
                    self._overrides[key] = value
                elif key.startswith(_SPARSE):
                    self._overrides[_SPARSE] = ""


def _pax_records(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield the pairs of records `LENGTH KEY=VALUE\\n`, LENGTH of all. Raises InvalidRequest."""
    position = 0
    while position < len(body) and body[position]:
        digits, space, _ = body[position : position + 21].partition(b" ")
        length = _number(digits.decode("ascii", "replace")) if space else 0
        end = position + length
        key, equals, value = body[position + len(digits) + 1 : max(end - 1, 0)].partition(b"=")
        if length <= len(digits) + 1 or end > len(body) or body[end - 1] != 10 or not equals:
            raise InvalidRequest("cannot unpack the archive: a pax header is broken")
        yield key.decode(_ENCODING, _ERRORS), value.decode(_ENCODING, _ERRORS)
        position = end


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise InvalidRequest("cannot unpack the archive: a pax header is broken")
    return int(text)
