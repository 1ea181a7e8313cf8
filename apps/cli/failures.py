"""How a command fails: one sentence on rank 0, exit code 2 on all ranks, MPI finalized."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mpi4py import MPI

Found = TypeVar("Found")

# What the environment says about the MPI job, before MPI is initialized: MPICH and its relatives;
# Open MPI; any launcher that speaks PMIx
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def in_job() -> bool:
    """Local. True where a launcher has started this process as a rank.

    An interactive shell of Slurm (``srun --pty``) has such variables, and is no job.
    """
    shell = "SLURM_PTY_PORT" in os.environ and os.environ.get("SLURM_NTASKS", "1") == "1"
    return not shell and any(name in os.environ for name in RANK_VARIABLES)


def early_rank() -> int:
    """Local. This process's rank as the launcher told it; 0 outside a job."""
    for name in RANK_VARIABLES:
        if name in os.environ:
            return int(os.environ[name])
    return 0


FAILED = 1  # exit code where something was found wrong, or a target was missed
INTERRUPTED = 130  # exit code after an interrupt, as shells have it
USAGE = 2  # exit code of a command that could not do what it was asked for
LONGEST_WAIT = 20.0  # seconds for all ranks to come to the end of a failed command
_meeting: list[MPI.Intracomm] = []  # where ranks meet when they fail, and for nothing else


class CommandError(Exception):
    """A mistake in what the command was given; raised on every rank with the same words."""


@contextmanager
def user_errors() -> Iterator[None]:
    """Local. Turn what the layers raise, on every rank alike, into :class:`CommandError`.

    Only calls that agree on their errors belong into the block: a file that cannot be read, a
    shape that does not fit, an unknown method. Anything else is unexpected and ends the job.
    """
    from onesided.collectives import OnesidedError

    try:
        yield
    except (OnesidedError, OSError, ValueError, EOFError, MemoryError) as error:
        raise CommandError(words(error)) from error


def words(error: BaseException) -> str:
    """Local. One line for an error."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split())


def fail(error: CommandError) -> int:
    """Collective in an MPI job, else local. Say what is wrong and return the exit code.

    The ranks leave together, because some launchers end the others as soon as one has left. Where
    they do not all come, this rank is alone with its error, and the job is aborted.
    """
    sentence = f"onesided: {error}"
    comm = _meeting[0] if _meeting else _world()
    if comm is None:
        if early_rank() == 0:
            print(sentence, file=sys.stderr, flush=True)
        return USAGE
    if comm.rank == 0:
        print(sentence, file=sys.stderr, flush=True)
    if not rest(comm, LONGEST_WAIT):
        if comm.rank != 0:
            print(f"{sentence} (rank {comm.rank} alone)", file=sys.stderr, flush=True)
        comm.Abort(USAGE)
    part()
    return USAGE


def stop() -> int:
    """Local. After an interrupt, which may have come to this rank alone: end the whole job."""
    print("onesided: interrupted", file=sys.stderr, flush=True)
    comm = _world()
    if comm is not None:
        comm.Abort(INTERRUPTED)
    return INTERRUPTED


def meet(comm: MPI.Intracomm) -> None:
    """Collective. Prepare for :func:`fail`: one rank's wait for the others there must not be
    taken for a barrier that these still wait in."""
    _meeting[:] = [comm.Dup()]


def part() -> None:
    """Collective. The command has come to its end."""
    while _meeting:
        _meeting.pop().Free()


def _world() -> MPI.Intracomm | None:
    """Local. All ranks of this job; None outside a job, or where MPI cannot be loaded."""
    if not in_job():
        return None
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return None
    return MPI.COMM_WORLD


def rest(comm: MPI.Intracomm, longest: float = math.inf) -> bool:
    """Collective. A barrier that sleeps, so that who is still at work has the machine; false where
    not all ranks come within ``longest`` seconds."""
    arrived = comm.Ibarrier()
    deadline = time.monotonic() + longest
    while not arrived.Test():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


def by_rank_0(comm: MPI.Intracomm, work: Callable[[], Found]) -> Found | None:
    """Collective. What rank 0 comes to while the others, which get None, sleep.

    :class:`CommandError` on every rank where rank 0 cannot do it.
    """
    found: Found | None = None
    trouble: CommandError | None = None
    if comm.rank == 0:
        try:
            with user_errors():
                found = work()
        except CommandError as error:
            trouble = type(error)(str(error))
    rest(comm)
    trouble = comm.bcast(trouble)
    if trouble is not None:
        raise trouble
    return found


def from_rank_0(comm: MPI.Intracomm, work: Callable[[], Found]) -> Found:
    """Collective. The same, but all ranks get it."""
    found: Found = comm.bcast(by_rank_0(comm, work))
    return found


# Giving back what all ranks have made together, where they all go on or all fail alike.


@contextmanager
def closing(comm: MPI.Intracomm) -> Iterator[ExitStack]:
    """Collective. The stack is closed at the end, and after a :class:`.CommandError` that all ranks
    have.

    Nothing is closed after an error that one rank has alone, be it this one or another: the others
    wait elsewhere, and it ends the job.
    """
    stack = ExitStack()
    apart = comm.Dup()  # a wait here must not be taken for a barrier that the others are in
    stack.callback(apart.Free)
    try:
        yield stack
    except CommandError:
        if rest(apart, LONGEST_WAIT):
            stack.close()
        raise
    stack.close()
