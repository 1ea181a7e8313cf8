"""Files that commands write: all of one or nothing, and seen to be possible before the work.

No MPI is imported here: who only starts a job looks for what it keeps.
"""

from __future__ import annotations

import errno
import os
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from onesided.apps.cli.failures import CommandError, by_rank_0, words
from onesided.apps.cli.options import FileName, FolderName, InputFile, Options, Picture

if TYPE_CHECKING:
    from mpi4py import MPI

NEEDS_MATPLOTLIB = "needs matplotlib (the extra plot)"
UNFINISHED = ".part"  # what the name of a file of cells ends with, beside that of the results


def beside(path: str) -> Path:
    """Local. Where a command keeps what it has measured until its JSON file is written."""
    return Path(path + UNFINISHED)


def is_stream(path: Path) -> bool:
    """Local. A pipe, a device, or what a shell makes of >(...), whatever it leads to: no file of
    parts can stand beside it."""
    return path.exists() and (not path.is_file() or path.absolute().is_relative_to("/dev"))


def replace_file(path: Path, text: str) -> None:
    """Local. Write a file under another name, and move it; what is no file is written to.

    A symbolic link stays one: what it leads to is replaced.
    """
    if is_stream(path):
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def unwritable(path: str) -> str:
    """Local. Why a file cannot be written there, or nothing; nothing is made or changed."""
    stream = is_stream(Path(path))
    file = Path(path) if stream else Path(path).resolve()
    folder = file if stream else file.parent  # what must be writable beside it
    if file.is_dir():
        code = errno.EISDIR
    elif not folder.exists():
        code = errno.ENOENT
    elif folder != file and not folder.is_dir():
        code = errno.ENOTDIR
    elif not all(os.access(each, os.W_OK) for each in (folder, file) if each.exists()):
        code = errno.EACCES
    else:
        return ""
    return words(OSError(code, os.strerror(code), path))


def check_files(comm: MPI.Intracomm, options: Options) -> None:
    """Collective. :class:`CommandError` before the work where a file cannot be written."""
    by_rank_0(comm, lambda: _check(options))


def _check_names(options: Options) -> None:
    """Local. :class:`CommandError` where a file that is written is also read, or written again; a
    run may go on from the checkpoint that it replaces."""
    named = [(name, each) for name, value in vars(options).items()
             for each in (value if isinstance(value, list) else [value])
             if isinstance(each, (FileName, InputFile)) and not is_stream(Path(each))]  # fmt: skip
    for (name, file), (other, same) in combinations(named, 2):
        written = isinstance(file, FileName) or isinstance(same, FileName)
        if written and {name, other} not in ({"checkpoint", "restart"}, {"output", "restart"}):
            if Path(file).resolve() == Path(same).resolve():
                raise CommandError(f"{file} is named twice, as {name} and as {other}")


def _check(options: Options) -> None:
    """Local. Options that may name a file or folder; OSError or :class:`CommandError`."""
    _check_names(options)
    for name, value in vars(options).items():
        if isinstance(value, FolderName):
            Path(value).mkdir(parents=True, exist_ok=True)
            if not os.access(value, os.W_OK):
                raise CommandError(f"{value}: Permission denied")
        if isinstance(value, Picture):
            if find_spec("matplotlib") is None:
                raise CommandError(f"--{name} {NEEDS_MATPLOTLIB}")
            from matplotlib.backends.backend_agg import FigureCanvasAgg

            known = FigureCanvasAgg.get_supported_filetypes()
            if Path(value).suffix[1:].lower() not in known:
                endings = ", ".join(sorted(known))
                raise CommandError(f"{value}: an image is one of {endings}, by the end of its name")
        if isinstance(value, FileName) and unwritable(value):
            raise CommandError(unwritable(value))
