"""A text file, plain or gzip'd, in blocks of whole lines.

Where the package isal is installed, it decompresses, at about three times gzip's speed.
"""

from __future__ import annotations

import gzip
import importlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO, cast

import numpy as np

from onesided.sparse.errors import MatrixFileError, MatrixMarketError

try:
    _igzip: Any = importlib.import_module("isal.igzip")
    _damage: Any = importlib.import_module("isal.isal_zlib").error
except ImportError:
    _igzip, _damage = None, zlib.error

_GZIP_MAGIC, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
_DAMAGES = (EOFError, zlib.error, gzip.BadGzipFile, _damage)
_LONGEST_LINE = 1 << 20
BLOCK_BYTES = 1 << 22  # of text that are parsed at a time

Advance = Callable[[int, int], object] | None  # called on rank 0: bytes read, bytes of the file


class TextFile:
    """Local. An open text file that knows the number of its next line.

    Compression is told by the first bytes, not by the name. Raises ``OSError`` where the file
    cannot be opened or read, an error of the class ``kind`` where its gzip data are damaged.
    """

    def __init__(
        self, path: str | os.PathLike[str], kind: type[MatrixFileError] = MatrixMarketError
    ) -> None:
        self.path = os.fspath(path)
        self.line = 1
        self.ended = True  #: Whether the last line that was read ends by a newline.
        self._kind = kind
        self._rest = b""
        self._file = open(self.path, "rb")
        with ExitStack() as stack:
            stack.callback(self.close)  # where what follows fails
            status = os.fstat(self._file.fileno())
            self.size = status.st_size
            gzipped = self._file.peek(2)[:2] == _GZIP_MAGIC
            #: Whether the file's bytes are not the text, or can be read once only, as of a pipe.
            self.packed = gzipped or not stat.S_ISREG(status.st_mode)
            self._stream: BinaryIO = self._file
            if gzipped:
                unpack = _igzip.IGzipFile if _igzip else gzip.GzipFile
                self._stream = cast(BinaryIO, unpack(fileobj=self._file))
                if re.search(r"\.(tar\.gz|tgz)\Z", self.path, re.IGNORECASE):
                    self._stream = self._member()
            stack.pop_all()

    @property
    def position(self) -> int:
        """Bytes of the file, packed ones where it is packed, that have been read; 0 of a pipe."""
        return self._file.tell() if self.size else 0

    @property
    def offset(self) -> int:
        """Where the next line begins in a file that is not packed."""
        return self._file.tell() - len(self._rest)

    def error(self, line: int, words: str) -> MatrixFileError:
        """The error to raise for a line of the file."""
        return self._kind(f"{self.path}, line {line}: {words}")

    def close(self) -> None:
        """Close the file; a second time has no effect."""
        self._file.close()

    def readline(self) -> bytes:
        """The next line without its end; raises ``EOFError`` at the end.

        At most 1 MiB of it: what is left of a comment is skipped. A byte order mark is no text.
        """
        text = self._rest or self._read(1 << 16)
        if self.line == 1:
            text = text.removeprefix(_BOM)
        while b"\n" not in text and len(text) < _LONGEST_LINE and (more := self._read(1 << 16)):
            text += more
        if not text:
            raise EOFError(f"{self.path} has {self.line - 1} lines")
        line, end, self._rest = text.partition(b"\n")
        self.line += 1
        if not end and line.lstrip().startswith(b"%"):
            while (more := self._read(1 << 16)) and b"\n" not in more:
                pass
            self._rest = more.partition(b"\n")[2]
        return line

    def _member(self) -> BinaryIO:
        """The matrix in an archive, NAME/NAME.mtx or NAME/NAME.rb as of SuiteSparse."""
        import tarfile

        try:
            archive = tarfile.open(fileobj=self._stream, mode="r|")
            for member in archive:
                folder, name = os.path.split(member.name)
                stem, ending = os.path.splitext(name)
                fits = ending.lower() in (".mtx", ".rb") and member.isreg()
                if fits and os.path.basename(folder) in ("", ".", stem):
                    return cast(BinaryIO, archive.extractfile(member))
        except (tarfile.TarError, *_DAMAGES) as error:
            raise self._kind(f"{self.path}: damaged archive: {error}") from error
        raise self._kind(f"{self.path} holds no NAME/NAME.mtx or NAME/NAME.rb")

    def block(self, size: int, lines: int | None = None) -> tuple[int, bytes]:
        """The number of the next line, and about ``size`` bytes of whole lines from there on.

        At most ``lines`` of them, if given. Empty at the end of the file. The last line gets a
        newline if it has none.
        """
        if lines == 0:
            return self.line, b""
        text = self._rest
        if len(text) < size:
            text += self._read(size - len(text))
        while (cut := text.rfind(b"\n", 0, size) + 1 or text.find(b"\n") + 1) == 0:
            if len(text) > size + _LONGEST_LINE:
                raise self.error(self.line, "longer than any entry")
            more = self._read(size)
            if not more:
                self.ended = not text
                text += b"\n" if text else b""
                cut = len(text)
                break
            text += more
        if lines is not None and text.count(b"\n", 0, cut) > lines:
            ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
            cut = int(ends[lines - 1]) + 1
        first, self._rest = self.line, text[cut:]
        block = text[:cut]
        self.line += block.count(b"\n")
        return first, block

    def tell(self, progress: Advance) -> None:
        """Say how many bytes of all have been read, if that is wanted."""
        if progress is not None:
            progress(min(self.position, self.size), self.size)

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except Exception as error:
            if not isinstance(error, _DAMAGES) and type(error).__module__ != "tarfile":
                raise
            what = "gzip data" if isinstance(error, _DAMAGES) else "archive"
            raise self._kind(
                f"{self.path}: damaged {what} somewhere after line {self.line}: {error}"
            ) from error


def line_blocks(file: BinaryIO, start: int, stop: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Local. The lines of a plain file that begin in a range of its bytes: where in the file, and
    about ``size`` bytes of whole lines from there on.

    The ranges of several ranks, if they join, give every line to exactly one of them; ``start``
    is 1 at least. The last line of the file gets a newline if it has none.
    """
    file.seek(start - 1)
    while file.tell() < stop and (text := file.readline(1 << 16)) and not text.endswith(b"\n"):
        pass  # a line that began before
    while (at := file.tell()) < stop and (text := file.read(min(size, stop - at))):
        if not text.endswith(b"\n"):
            text += file.readline(_LONGEST_LINE)
        if not text.endswith(b"\n"):
            if file.read(1):
                raise MatrixMarketError(
                    f"{file.name}: a line near byte {at} is longer than any entry"
                )
            text += b"\n"
        yield at, text
