"""What ``--comm``, ``--memory``, ``--ranks-list`` and ``--info`` choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import ALL, Options
from onesided.apps.cli.report import BASELINE
from onesided.collectives import empty, free, methods

Array = NDArray[Any]
Made = TypeVar("Made")


def named(text: str, known: Iterable[str], of: str = "") -> list[str]:
    """Local. The names that ``--comm`` means, each once; ``of`` says what the known ones do.

    :class:`CommandError` where a name is unknown; it lists the known ones.
    """
    known = list(dict.fromkeys(known))
    names = known if text == ALL else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise CommandError(
                f"no method {name!r}{of}; the methods are {', '.join(known)}, or {ALL}"
            )
    return list(dict.fromkeys(names))


def chosen(text: str, *, baseline: bool = True) -> list[str]:
    """Local. Methods of an exchange, as :func:`named`; the baseline first if it is wanted."""
    return list(dict.fromkeys([*([BASELINE] if baseline else []), *named(text, methods())]))


def ways_of(text: str, known: Mapping[str, Made], reference: str) -> dict[str, Made]:
    """Local. Of the ways that ``known`` has by name those that ``--comm`` means, as :func:`named`;
    the reference in any case, and first."""
    return {name: known[name] for name in dict.fromkeys([reference, *named(text, known)])}


def hints(options: Options) -> dict[str, str]:
    """Local. The info that ``--info`` gives; ``auto`` is told how often it will be started."""
    return {"expected_iterations": str(options.iterations), **dict(options.info)}


def counted(size: int, asked: Sequence[int] | None, usual: Sequence[int]) -> list[int]:
    """Local. The numbers of ranks; :class:`CommandError` for more than the job has."""
    if asked and max(asked) > size:
        raise CommandError(
            f"--ranks-list {max(asked)}: the job has {size} rank{'s' if size > 1 else ''}"
        )
    return sorted(set(asked or usual))


def receiving(comm: MPI.Intracomm, memory: str, count: int, stack: ExitStack) -> Array:
    """Collective. So many doubles of a kind that ``--memory`` names but for the slots of a request;
    freed with the stack."""
    if memory != "empty":
        return np.zeros(count)
    array = empty(comm, count, np.float64)
    stack.callback(free, array)
    return array
