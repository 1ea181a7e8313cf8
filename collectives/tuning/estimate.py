"""What the model says of the candidates: nothing is measured.

The model knows rounds only. The first candidate is the cheapest to set up; the others are assumed
to cost :data:`SETUP` more, which counts where the caller says how often it will start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mpi4py import MPI

from onesided.collectives.agreement import agreed
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Context, Node
from onesided.collectives.exchange import Exchange
from onesided.collectives.modelling import observed
from onesided.collectives.modelling.kept import ASSUMED, known_parameters
from onesided.collectives.modelling.parameters import Parameters
from onesided.collectives.modelling.prediction import predict
from onesided.collectives.modelling.registry import broadcast_formulas, formulas
from onesided.collectives.tuning.record import Cost, Record

#: Seconds of making and freeing a window and its memory, as assumed.
SETUP = 5e-3


def of_exchange(exchange: Exchange, names: Sequence[str]) -> Record:
    """Collective, the same on all ranks. Seconds of a round by the model of each method."""
    context = exchange.context
    mine = exchange.hints.slots if exchange.owned else 1
    slots = context.comm.allreduce(mine, MPI.MIN)  # receive memory may differ between ranks
    traffic = replace(observed.of_exchange(exchange), slots=slots)
    parameters = _parameters(context, bool(traffic.near_messages), bool(traffic.far_messages))
    known = [name for name in names if name in formulas()]
    times = predict(traffic, parameters, known)
    return _record(names, times)


def of_broadcast(broadcast: Broadcast, names: Sequence[str]) -> Record:
    """Collective, the same on all ranks. By LogGP between nodes, for the methods it describes."""
    first = _nodes(broadcast.context, broadcast.node)
    nodes, nbytes = len(set(first)), broadcast.nbytes
    if nodes < 2:
        return Record({}, {})
    parameters = _parameters(broadcast.context, False, True)
    network = parameters.level("network").messages.at(nbytes)
    times = {
        name: formula(network, nodes, max(nbytes, 1), broadcast.hints.child_order)
        for name, formula in broadcast_formulas().items()
    }
    return _record(names, times)


def _record(names: Sequence[str], times: Mapping[str, float]) -> Record:
    setups = {name: SETUP if place else 0.0 for place, name in enumerate(names)}
    return Record({name: Cost(setups[name], times[name]) for name in names if name in times}, {})


def _nodes(context: Context, node: Node) -> list[int]:
    """Collective. For every rank the lowest rank of its node."""
    return context.comm.allgather(node.ranks[0])


def _parameters(context: Context, near: bool, far: bool) -> Parameters:
    """Collective. Those of rank 0; levels that it has not measured are assumed."""
    mine = None
    with agreed(context.comm, "parameters"):  # a warning may have been made an error
        if context.comm.rank == 0:
            mine = known_parameters()
    found: Parameters = context.comm.bcast(mine)
    if near and found.node is None:
        found = replace(found, node=ASSUMED.node)
    if far and found.network is None:
        found = replace(found, network=ASSUMED.network)
    return found
