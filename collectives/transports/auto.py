"""The transport chosen by measurement on the real pattern."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onesided.collectives import registry
from onesided.collectives.construction import construct
from onesided.collectives.exchange import Exchange
from onesided.collectives.measurement import cheapest, cost_of
from onesided.collectives.request import PersistentRequest


class Auto(PersistentRequest):
    """Measures the candidates and becomes the best one.

    Candidates are the methods that allow any order; those of strict order as well where the
    caller promises it (info key ``mpi_assert_strict_persistent_collective_ordering``). With the
    info key ``expected_iterations`` = N the cost T_init + N T of each decides (the break-even rule
    of the paper, equations 1 to 3), without it T alone. Measured on scratch receive memory: the
    caller's is not touched.
    """

    @classmethod
    def build(cls, exchange: Exchange) -> PersistentRequest:
        """Collective. The request of the best transport; all ranks choose the same one."""
        hints = exchange.hints

        def cost(method: registry.Method[PersistentRequest]) -> float:
            def make() -> PersistentRequest:
                return construct(method.load(), _scratch(method, exchange))

            return cost_of(exchange.context.comm, make, hints.expected_iterations)

        known = registry.methods().values()
        best = cheapest((m for m in known if m.candidate and (m.any_order or hints.strict)), cost)
        return construct(best.load(), replace(exchange, method=best.name))


def _scratch(method: registry.Method[PersistentRequest], exchange: Exchange) -> Exchange:
    """The same exchange into other memory of the same kind, under a number of its own."""
    recv, hints = exchange.recv, exchange.hints
    if recv.array is not None:
        if exchange.in_window_memory:
            hints = replace(hints, slots=1)
            recv = replace(recv, array=None)
        else:
            recv = replace(recv, array=np.empty_like(recv.array))
    number = exchange.context.next_tag()
    return replace(exchange, method=method.name, recv=recv, hints=hints, number=number)
