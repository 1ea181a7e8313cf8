"""Which methods a command runs, and making with each what is to be measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from mpi4py import MPI

from onesided.apps.bench.race import Made, clocked
from onesided.apps.cli.failures import CommandError, user_errors, words
from onesided.apps.cli.options import ALL, Options
from onesided.apps.cli.report import BASELINE as BASELINE
from onesided.apps.cli.report import Row
from onesided.collectives import MPIError, ResourceError, UnsupportedError, methods


def named(text: str, known: Iterable[str], of: str = "") -> list[str]:
    """Local. The names that ``--comm`` means, each once; ``of`` says what the known ones do.

    :class:`CommandError` where a name is unknown; it lists the known ones.
    """
    known = list(known)
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


@dataclass
class Candidate(Generic[Made]):
    """What a method made, the seconds that making and freeing took, or why it could not."""

    method: str
    made: Made | None = None
    setup: float = 0.0
    freeing: float = 0.0
    reason: str = ""

    def row(self, rows: Mapping[str, Row], labels: Mapping[str, str]) -> Row:
        """Local. That of its method, with the seconds of making and freeing; or why there is
        none, with these labels."""
        if self.reason:
            return Row({**labels, "method": self.method}, reason=self.reason)
        row = rows[self.method]
        row.setup = self.setup + self.freeing
        return row


def _free(made: Any) -> None:
    """Collective."""
    made.free()


class Candidates(list[Candidate[Made]]):
    """What every method made, in their order."""

    @property
    def made(self) -> dict[str, Made]:
        """Local. By method what is there."""
        return {each.method: each.made for each in self if each.made is not None}

    def refused(self, **labels: str) -> list[Row]:
        """Local. A row for every method that could not; ``labels`` come before its own."""
        return [
            Row({**labels, "method": each.method}, reason=each.reason)
            for each in self if each.reason
        ]  # fmt: skip


def prepare(
    comm: MPI.Intracomm,
    names: Sequence[str],
    make: Callable[[str], Made],
    free: Callable[[Made], object] = _free,
) -> Candidates[Made]:
    """Collective. Let each method make its object; what this MPI cannot do is kept as a reason.

    :class:`CommandError` where none of the methods asked for (the baseline does not count) works,
    or where what the user asked for is wrong with any method.
    """
    candidates: Candidates[Made] = Candidates()
    try:
        with user_errors():
            for name in names:
                candidates.append(_prepare(comm, name, make))
    except CommandError:
        release(comm, candidates, free)  # every rank has the same error and the same candidates
        raise
    asked = [each for each in candidates if each.method != BASELINE] or candidates
    if all(each.made is None for each in asked):
        release(comm, candidates, free)
        raise CommandError("; ".join(f"{each.method}: {each.reason}" for each in asked))
    return candidates


def _prepare(comm: MPI.Intracomm, name: str, make: Callable[[str], Made]) -> Candidate[Made]:
    try:
        return Candidate(name, *clocked(comm, partial(make, name)))
    except (UnsupportedError, ResourceError, MPIError) as error:
        return Candidate(name, reason=words(error))


def release(
    comm: MPI.Intracomm,
    candidates: Sequence[Candidate[Made]],
    free: Callable[[Made], object] = _free,
) -> None:
    """Collective. Free what was made, in reverse order, and note how long it took."""
    for candidate in reversed(candidates):
        if candidate.made is not None:
            _, candidate.freeing = clocked(comm, partial(free, candidate.made))
            candidate.made = None
