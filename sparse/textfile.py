"""A text file, plain or gzip'd, in blocks of whole lines."""

from __future__ import annotations

import gzip
import os
import zlib
from typing import BinaryIO, cast

from onesided.sparse.errors import MatrixMarketError

_GZIP_MAGIC = b"\x1f\x8b"
_LONGEST_LINE = 1 << 20


class TextFile:
    """Local. An open text file that knows the number of its next line.

    Compression is told by the first bytes, not by the name. Raises ``OSError`` where the file
    cannot be opened or read, :class:`MatrixMarketError` where its gzip data are damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.line = 1
        self._rest = b""
        self._file = open(self.path, "rb")
        packed = self._file.peek(2)[:2] == _GZIP_MAGIC
        self._stream: BinaryIO = self._file
        if packed:
            self._stream = cast(BinaryIO, gzip.GzipFile(fileobj=self._file))

    def close(self) -> None:
        """Close the file; a second time has no effect."""
        self._file.close()

    def readline(self) -> bytes:
        """The next line without its end, at most 1 MiB of it; raises ``EOFError`` at the end."""
        text = self._rest or self._read(1 << 16)
        while b"\n" not in text and len(text) < _LONGEST_LINE and (more := self._read(1 << 16)):
            text += more
        if not text:
            raise EOFError(f"{self.path} has {self.line - 1} lines")
        line, _, self._rest = text.partition(b"\n")
        self.line += 1
        return line

    def block(self, size: int) -> tuple[int, bytes]:
        """The number of the next line, and about ``size`` bytes of whole lines from there on.

        Empty at the end of the file. The last line gets a newline if it has none.
        """
        text = self._rest
        if len(text) < size:
            text += self._read(size - len(text))
        while (cut := text.rfind(b"\n", 0, size) + 1 or text.find(b"\n") + 1) == 0:
            if len(text) > size + _LONGEST_LINE:
                raise MatrixMarketError(f"{self.path}, line {self.line}: longer than any entry")
            more = self._read(size)
            if not more:
                text += b"\n" if text else b""
                cut = len(text)
                break
            text += more
        first, self._rest = self.line, text[cut:]
        block = text[:cut]
        self.line += block.count(b"\n")
        return first, block

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise MatrixMarketError(
                f"{self.path}: damaged gzip data somewhere after line {self.line}: {error}"
            ) from error
