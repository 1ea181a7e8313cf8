"""One matrix multiplied by our methods, by PETSc and by SciPy in turns: who takes part, and times.

PETSc multiplies the same rows in the same partition, in a job of its own. SciPy has the whole
matrix on rank 0, alone; meanwhile the other ranks sleep.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mpi4py import MPI

from onesided.apps.foreign import ForeignError
from onesided.apps.petsc import Installation, Petsc, find, question
from onesided.apps.progress import console
from onesided.apps.rowblock import RowBlock
from onesided.apps.selection import Candidate, hints, prepare, release
from onesided.apps.sparse_targets import PETSC, SCIPY
from onesided.apps.spmv import product, traffic, vector
from onesided.apps.timing import LEAD, STEADY, Subject, repeats, steady, timed
from onesided.sparse import DistMatrix


@dataclass(frozen=True)
class Opponent:
    """PETSc, as it was found: rank 0 has the installation, all have the reason if there is none."""

    installation: Installation | None
    reason: str = ""

    @classmethod
    def found(cls, comm: MPI.Intracomm) -> Opponent:
        """Collective."""
        try:
            return cls(find(comm))
        except ForeignError as error:
            return cls(None, str(error))

    def start(self, comm: MPI.Intracomm, block: RowBlock, x: Any) -> Petsc:
        """Collective. :class:`ForeignError` on every rank where it cannot take part."""
        if self.reason:
            raise ForeignError(self.reason)
        return Petsc(comm, self.installation, block, x)


@dataclass
class Outcome:
    """What came out: seconds of a product by name, and what there is to say about the matrix.

    ``products`` tells by method how it multiplies; ``absent`` why an opponent did not take part;
    ``facts`` what PETSc says of itself. ``nbytes``: the arrays of the whole matrix; ``moved``:
    what one product reads and writes at least.
    """

    times: dict[str, list[float]]
    candidates: list[Candidate[DistMatrix]]
    products: dict[str, str]
    shape: tuple[int, int]
    nnz: int
    nbytes: int
    moved: int
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def contest(
    comm: MPI.Intracomm, options: Namespace, block: RowBlock, names: Sequence[str], petsc: Opponent
) -> Outcome:
    """Collective. Time products of all of them with the same matrix."""
    info = hints(options)
    candidates = prepare(comm, names, block.maker(comm, info), DistMatrix.Free)
    matrices = {each.method: each.made for each in candidates if each.made is not None}
    first = next(iter(matrices.values()))
    outcome = Outcome(
        {},
        candidates,
        {name: each.kernel_name for name, each in matrices.items()},
        block.shape,
        first.nnz,
        _bytes(comm, block),
        traffic(first),
    )
    x = vector(*first.col_range, first.dtype)
    subjects = [steady(comm, name, product(each, x)) for name, each in matrices.items()]
    subjects.append(_serial(comm, first))
    whole = vector(0, first.shape[1], first.dtype)
    job: Petsc | None = None
    try:
        job = petsc.start(comm, block, whole)
        outcome.facts = job.facts
        asked = question(repeats(comm, subjects[0].call, STEADY), LEAD)
        subjects.append(Subject(PETSC, partial(job.run, asked), alone=True))
    except ForeignError as error:
        outcome.absent[PETSC] = str(error)
    out = console(options.terminal) if comm.rank == 0 else None
    lists = timed(comm, subjects, options, out, "multiplying")
    outcome.times = {each.name: times for each, times in zip(subjects, lists, strict=True)}
    if job is not None:  # by its own clock, which does not see the question and the answer
        outcome.times[PETSC] = job.times(asked, len(outcome.times[PETSC]))
        job.close()
    release(comm, candidates, DistMatrix.Free)
    return outcome


def _serial(comm: MPI.Intracomm, matrix: DistMatrix) -> Subject:
    """Collective. SciPy's product with the whole matrix, on rank 0 alone."""
    whole = matrix.gather()
    x = vector(0, matrix.shape[1], matrix.dtype)
    return steady(comm, SCIPY, lambda: whole @ x if whole is not None else None, alone=True)


def _bytes(comm: MPI.Intracomm, block: RowBlock) -> int:
    """Collective. The arrays of the matrix on all ranks together."""
    entries = block.entries
    mine = entries.data.nbytes + entries.indices.nbytes + entries.indptr.nbytes
    return int(comm.allreduce(mine))
