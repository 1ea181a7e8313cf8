"""A run of a cell: its memory and whoever transfers, made anew for every run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mpi4py import MPI

from onesided.apps.rmamt.cell import Cell
from onesided.apps.rmamt.layout import Layout, messages_of
from onesided.apps.rmamt.patterns import PATTERNS, Route
from onesided.apps.rmamt.plan import Plan


class Stage(ABC):
    """Whoever transfers, by name. Collective, as its methods are, but for :meth:`prepare`.

    ``layout``: of the memory; ``sent``: messages of this rank in a round; ``ways``: how many of
    them follow each other.
    """

    ways = 1

    def __init__(self, comm: MPI.Intracomm, cell: Cell, plan: Plan) -> None:
        self.comm, self.route = comm, route_of(comm, cell, plan)
        self.layout = layout_of(self.route, cell, plan)
        self.sent = len(self.route.outgoing) * self.layout.threads * self.layout.messages
        self.names: Sequence[str] = ()

    @abstractmethod
    def prepare(self, name: str) -> None:
        """Local. Before the barrier of a round: who transfers in it is there."""

    @abstractmethod
    def round(self, name: str) -> float:
        """One epoch; returns the seconds that this rank took."""

    @abstractmethod
    def fill(self, turn: int) -> None:
        """New data before a round; a barrier comes after it."""

    @abstractmethod
    def wrong(self, turn: int) -> int:
        """Messages of this rank that did not come as they should; a barrier comes before it."""

    def free(self) -> None:
        """Collective. Give back everything that MPI holds, which may be nothing."""
        self.names = ()


def route_of(comm: MPI.Intracomm, cell: Cell, plan: Plan) -> Route:
    """Local. Of this rank."""
    return PATTERNS[cell.pattern].route(comm.rank, comm.size, plan.neighbours)


def layout_of(route: Route, cell: Cell, plan: Plan) -> Layout:
    """Local. The memory of every rank of a cell, alike everywhere."""
    threads, slots = max(1, cell.threads), route.slots
    wanted = plan.messages if PATTERNS[cell.pattern].many else 1
    messages = messages_of(wanted, slots, threads, cell.size, plan.window)
    return Layout(slots, threads, messages, cell.size)
