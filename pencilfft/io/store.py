"""The files behind one name, and how they change: all at once or not at all.

``u.h5``, the main file, holds groups, attributes and one virtual dataset per field and step. The
data lie in files in the folder ``u.h5.parts``, one for each node, named by store, revision and the
lowest rank of the node, and referred to by paths relative to the main file: main file and folder
can be moved together, and the main file may be renamed.

A revision is one change, by one writer: who begins it locks the store until it is completed or
taken back, and another one is told so. Its files in the folder are new, under names that no other
revision has; then a copy of the main file is changed, written to the disk and renamed over the main
file, and files are removed to which the main file of before referred and this one does not. A
journal in the folder says which revision is on its way: whoever changes the store next removes what
a run that was killed has left. Readers see the main file of before or of after.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import h5py

from onesided.pencilfft.io.filebase import FileError, naming

IDENTITY, REVISION, JOINED = "onesided_store", "onesided_revision", "onesided_joined"
#: The file that a writer locks, in the folder; and what systems say whose files cannot be locked.
LOCK, NO_LOCKS = "lock", (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)

Found = TypeVar("Found")


class Source(NamedTuple):
    """A dataset in a file, named as the main file refers to it, and the box that it fills;
    ``whole``: with all that it has."""

    reference: str
    dataset: str
    box: tuple[slice, ...]
    whole: bool = True


class Store:
    """Local. The main file ``filename``, its folder of files with data, and its journal."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.main = os.path.realpath(filename)
        self.folder = self.main + ".parts"
        #: The main file of the revision that is on its way.
        self.new = self.main + ".new"
        self._journal = os.path.join(self.folder, "journal")
        self._lock: Any = None  # the open file of it; of the revision that this object has begun
        self._prefix = ""  # of that
        self._before = ("", 0)  # what the main file was then

    def open(self) -> Any:
        """Local. The main file for reading, as an h5py.File."""
        if not os.path.isfile(self.main):
            raise FileError(f"{self.main}: there is no such file")
        with naming(self.main):
            return h5py.File(self.main, "r")

    def path(self, prefix: str, part: int | str) -> str:
        """Local. A file of the revision with this prefix; ``part`` is a rank, or a word."""
        word = part if isinstance(part, str) else f"{part:05d}"
        return os.path.join(self.folder, f"{prefix}-{word}.h5")

    def relative(self, path: str) -> str:
        """Local. How the main file refers to a file."""
        return os.path.relpath(path, os.path.dirname(self.main))

    def begin(self, afresh: bool) -> str:
        """Local. Announce a revision; the prefix of its files.

        ``afresh`` begins a new store, which replaces an existing file when it is completed.
        """
        with naming(self.main):
            if os.path.isdir(self.main):
                raise FileError(f"{self.main}: a folder has this name")
            self._give_lock()  # of a revision that an interrupt has ended
            self._take_lock()
            try:
                self.recover(afresh)
                self._before = self._of_main(identity, ("", 0), afresh)
                name, revision = ("", 0) if afresh else self._before
                name = name or uuid.uuid4().hex[:12]
                prefix = f"{name}-{revision + 1:06d}-{uuid.uuid4().hex[:8]}"
                os.makedirs(self.folder, exist_ok=True)
                self._prefix = prefix
                self._announce(prefix)
            except BaseException:
                remove([self._journal + ".new"])
                self._give_lock()
                raise
        return prefix

    def complete(self, prefix: str, change: Callable[[Any], object], afresh: bool) -> None:
        """Local. Apply ``change`` to a copy of the main file, an h5py.File; it replaces the main
        file. What it returns is true where it has taken something away."""
        with naming(self.main):
            self._copy(prefix, afresh)
            self._change(prefix, lambda file: bool(change(file)) or afresh)

    def edit(self, afresh: bool) -> str:
        """Local. Announce a revision, for :meth:`replace`. :attr:`new` is a copy of the main file,
        if that is wanted and there; the prefix."""
        prefix = self.begin(afresh)
        with naming(self.main):
            self._copy(prefix, afresh)
        return prefix

    def replace(self, prefix: str, image: bytes) -> None:
        """Local. Let the bytes of an edited main file be the main file."""
        with naming(self.main):
            Path(self.new).write_bytes(image)
            self._change(prefix, lambda file: True)

    def _change(self, prefix: str, change: Callable[[Any], bool]) -> None:
        """Change the new main file, and put it in the place of the present one."""
        name, revision = prefix.split("-")[:2]
        gone: set[str] = set()
        with written(self.new, afresh=not os.path.exists(self.new)) as file:
            if change(file):
                gone = self._of_main(self.sources, gone, careless=True) - self.sources(file)
            file.attrs[IDENTITY], file.attrs[REVISION] = name, int(revision)
        to_disk(self.folder)
        self._announce(prefix, sorted(gone), ready=True)
        if self._of_main(identity, ("", 0), careless=True) != self._before:
            raise FileError(f"{self.main}: somebody else has changed it meanwhile")
        os.replace(self.new, self.main)
        to_disk(os.path.dirname(self.main))
        self.recover()
        self._prefix = ""
        self._give_lock()

    def abandon(self) -> None:
        """Local. Take back the revision that this object has announced and not completed, as far as
        possible."""
        with contextlib.suppress(OSError):  # where somebody else is changing it, too
            taken = self._lock is not None  # or somebody else may be changing it
            if taken and self._prefix and self._announced().get("prefix") == self._prefix:
                self.recover(careless=True)
        self._prefix = ""
        self._give_lock()

    def recover(self, careless: bool = False) -> None:
        """Local. Remove what the last revision has left: it was completed, or it was not.

        ``careless`` says that a main file which cannot be read is about to be replaced.
        """
        if not os.path.isdir(self.folder):
            return
        journal = self._announced()
        if journal:
            prefix, gone = journal["prefix"], set(journal["gone"])
            name, revision = prefix.split("-")[:2]
            there, reached = self._of_main(identity, ("", 0), careless)
            completed = there == name and reached >= int(revision)
            if there != name:  # where that was the main file, it has another name by now
                completed = journal["ready"] and not os.path.exists(self.new)
            if not completed:
                remove(Path(self.folder).glob(prefix + "-*"))
            elif there == name and gone:
                used: set[str] = self._of_main(self.sources, set(), careless)
                remove(os.path.join(self.folder, file) for file in gone - used)
            remove([self._journal])
        remove([self.new, self._journal + ".new"])

    def _of_main(self, ask: Callable[[Any], Found], none: Found, careless: bool) -> Found:
        """What is found in the main file; ``none`` where there is no file, or, if ``careless``, one
        that cannot be read."""
        if os.path.exists(self.main):
            try:
                with naming(self.main), self.open() as file:
                    return ask(file)
            except FileError:
                if not careless:
                    raise
        return none

    def _take_lock(self) -> None:
        """Until :meth:`_give_lock`, or until the process ends; of a file that is removed then."""
        path = os.path.join(self.folder, LOCK)
        while True:
            os.makedirs(self.folder, exist_ok=True)
            try:
                # an object that is dropped closes it, whatever has come between
                held = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
            except FileNotFoundError:
                continue  # the folder was removed as it was empty
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(held.fileno()), os.stat(path)):
                    self._lock = held
                    return
            except FileNotFoundError:
                pass  # removed by whoever had it
            except OSError as error:
                if error.errno in NO_LOCKS:
                    self._lock = held
                    return
                held.close()
                if isinstance(error, BlockingIOError):
                    raise FileError(f"{self.main}: somebody else is changing it") from error
                raise
            held.close()

    def _give_lock(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(self.folder, LOCK))
            self._lock.close()
            self._lock = None
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)  # where it is empty

    def sources(self, file: Any) -> set[str]:
        """Local. The names of the files in the folder that an open main file refers to."""
        paths = self.referred(file)
        return {os.path.basename(path) for path in paths if os.path.dirname(path) == self.folder}

    def referred(self, file: Any) -> set[str]:
        """Local. All files that the datasets of an open main file refer to."""
        found: set[str] = set()

        def visit(_: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found.update(self.resolve(source.reference) for source in sources_of(item))

        file.visititems(visit)
        return found

    def resolve(self, reference: str) -> str:
        """Local. The file that a virtual dataset names; a dot is the main file itself."""
        if reference == ".":
            return self.main
        return os.path.normpath(os.path.join(os.path.dirname(self.main), reference))

    def _announce(self, prefix: str, gone: Sequence[str] = (), ready: bool = False) -> None:
        """Write the journal; ``ready``: the new main file is renamed next, and needs the files that
        are ``gone`` no more. It is lost with the machine, at the price of files nobody needs."""
        journal = {"prefix": prefix, "gone": list(gone), "ready": ready}
        with open(self._journal + ".new", "w", encoding="utf-8") as stream:
            json.dump(journal, stream)
        os.replace(self._journal + ".new", self._journal)

    def _announced(self) -> dict[str, Any]:
        """The journal, empty where there is none."""
        try:
            with open(self._journal, encoding="utf-8") as stream:
                journal: dict[str, Any] = json.load(stream)
        except (FileNotFoundError, ValueError):
            return {}
        return journal

    def _copy(self, prefix: str, afresh: bool) -> None:
        """Copy the main file for the next revision, where it is wanted and there."""
        if afresh or not os.path.exists(self.main):
            return
        with self.open() as file:
            light = IDENTITY in file.attrs and JOINED not in file.attrs
            if not light:
                self._refer(file, self.path(prefix, "base"))
        if light:
            shutil.copyfile(self.main, self.new)

    def _refer(self, file: Any, base: str) -> None:
        """Make a main file that refers to the data of this one, which stays as ``base``."""
        try:
            os.link(self.main, base)
        except OSError:
            shutil.copyfile(self.main, base)  # no links on this file system
            to_disk(base)
        referred: list[str] = []
        with written(self.new, afresh=True) as new:

            def refer(name: str, item: Any) -> Any:
                if item.is_virtual or item.dtype.hasobject or item.nbytes < 4096:
                    return None
                referred.append(name)
                whole = tuple(slice(0, n) for n in item.shape)
                source = Source(self.relative(base), name, whole)
                return create_virtual(new, name, item.shape, item.dtype, [source])

            copy_tree(file, new, refer)
            new.attrs.pop(JOINED, None)
        if not referred:
            remove([base])


def identity(file: Any) -> tuple[str, int]:
    """Local. Name and revision of the store as an open main file has them; no name where it was
    written by others."""
    return str(file.attrs.get(IDENTITY, "")), int(file.attrs.get(REVISION, 0))


def copy_tree(file: Any, new: Any, instead: Callable[[str, Any], Any]) -> None:
    """Local. Make the same groups, attributes, datasets and links in another file; ``instead``
    makes another dataset in the place of one, or returns None."""
    links: list[tuple[str, Any]] = []
    file.visititems_links(lambda *link: links.append(link))  # h5py takes no exception from there
    names = {address_of(file["/"]): "/"}  # of objects that are there
    new.attrs.update(file.attrs)
    for name, link in links:
        if not isinstance(link, h5py.HardLink):
            new[name] = link
            continue
        item = file[name]
        first = names.setdefault(address_of(item), name)
        if first != name:  # a further name of an object
            new[name] = new[first]
            continue
        made = new.create_group(name) if isinstance(item, h5py.Group) else None
        if isinstance(item, h5py.Dataset):  # it may be a named type
            made = instead(name, item)
        if made is None:
            file.copy(name, new, name)
        else:
            made.attrs.update(item.attrs)


def address_of(item: Any) -> int:
    """Local. Where in its file an object lies."""
    address: int = h5py.h5o.get_info(item.id).addr
    return address


def create_virtual(
    file: Any,
    name: str,
    shape: tuple[int, ...],
    dtype: Any,
    sources: Iterable[Source],
) -> Any:
    """Local. A virtual dataset of whole others. What a missing file leaves open reads as NaN
    elsewhere; :mod:`onesided.pencilfft.io.hdf5` refuses to read it.
    """
    layout = h5py.VirtualLayout(shape, dtype)
    for reference, dataset, box, _ in sources:
        extent = tuple(span.stop - span.start for span in box)
        names = (name.replace("%", "%%") for name in (reference, dataset))
        layout[box] = h5py.VirtualSource(*names, extent)
    fill = {"f": float("nan"), "c": complex("nan+nanj")}.get(dtype.kind)
    return file.create_virtual_dataset(name, layout, fillvalue=fill)


def sources_of(dataset: Any) -> Iterator[Source]:
    """Local. What a virtual dataset consists of; nothing for another one."""
    for source in dataset.virtual_sources() if dataset.is_virtual else ():
        low, high = source.vspace.get_select_bounds()
        box = tuple(slice(int(first), int(last) + 1) for first, last in zip(low, high, strict=True))
        file, name = (word.replace("%%", "%") for word in (source.file_name, source.dset_name))
        yield Source(file, name, box, source.src_space.get_select_type() == h5py.h5s.SEL_ALL)


class QuietFile(io.FileIO):
    """Local. A file into which nothing is written from its first error on.

    Where a write or the close of a file fails, as on a full disk, HDF5 keeps the file open and may
    crash when the program ends. So it is not told.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of ``data`` at the current place."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while self.error is None and done < len(view):
                done += super().write(view[done:]) or 0
        except OSError as error:
            self.error = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Cut or extend the file."""
        try:
            if self.error is None:
                return super().truncate(size)
        except OSError as error:
            self.error = error
        return size or 0

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer``; what the file does not have reads as zeros."""
        view = memoryview(buffer).cast("B")
        done = 0
        while count := super().readinto(view[done:]):
            done += count
        view[done:] = bytes(len(view) - done)
        return len(view)


@contextlib.contextmanager
def written(path: str, afresh: bool, **options: Any) -> Iterator[Any]:
    """Local. An h5py.File to write a new file (``afresh``) or change one; at the end on the disk.

    Raises OSError, of the first write that failed, when the block is left.
    """
    with QuietFile(path, "w+" if afresh else "r+") as quiet:
        try:
            with h5py.File(quiet, "w" if afresh else "r+", **options) as file:
                yield file
        finally:
            if quiet.error is not None:
                raise quiet.error from None
        os.fsync(quiet.fileno())


def to_disk(path: str, fill: Callable[[int], object] | None = None) -> None:
    """Local. Return when what was written to a file, or the names in a folder, are on the disk;
    ``fill`` writes to the file before, whose number it gets."""
    number = os.open(path, os.O_RDONLY if fill is None else os.O_WRONLY)
    try:
        if fill is not None:
            fill(number)
        os.fsync(number)
    finally:
        os.close(number)


def remove(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Local. Remove files; those that are gone already are no matter."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
