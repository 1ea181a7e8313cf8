"""The transport chosen by measurement on the real pattern."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from onesided.collectives import registry
from onesided.collectives.construction import construct
from onesided.collectives.exchange import Exchange
from onesided.collectives.registry import Method
from onesided.collectives.request import PersistentRequest
from onesided.collectives.tuning import estimate, situation
from onesided.collectives.tuning.choice import choose


class Auto(PersistentRequest):
    """Measures the candidates, or recalls what was measured, and becomes the best one.

    Candidates are the methods that allow any order; those of strict order as well where the
    caller promises it (info key ``mpi_assert_strict_persistent_collective_ordering``). With the
    info key ``expected_iterations`` = N the cost T_init + N T of each decides (the break-even rule
    of the paper, equations 1 to 3), and measuring takes no more than a twentieth of the expected
    time (fewer than 100 rounds: nothing is measured); without it T alone. Measured on scratch
    receive memory: the caller's is not touched. With ``effort=estimate`` in the info nothing is
    measured: the model of every method decides.
    """

    @classmethod
    def build(cls, exchange: Exchange) -> PersistentRequest:
        """Collective. The request of the best transport; all ranks choose the same one."""
        hints = exchange.hints
        known = registry.methods().values()

        def trial(method: Method[PersistentRequest]) -> PersistentRequest:
            return construct(method.load(), _scratch(method, exchange))

        def build(method: Method[PersistentRequest]) -> PersistentRequest:
            return construct(method.load(), replace(exchange, method=method.name))

        candidates = [m for m in known if m.candidate and (m.any_order or hints.strict)]
        found = situation.of_exchange(exchange)
        ask = partial(estimate.of_exchange, exchange)
        return choose(exchange.context, found, candidates, trial, build, ask, hints)


def _scratch(method: Method[PersistentRequest], exchange: Exchange) -> Exchange:
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
