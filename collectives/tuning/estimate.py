"""What the model says of the candidates: nothing is measured.

What a candidate costs to set up counts where the caller says how often it will start: what was
measured, else that of a request with windows for all but the first candidate, the cheapest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mpi4py import MPI

from onesided.collectives.agreement import agreed
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Context, Node
from onesided.collectives.exchange import Exchange
from onesided.collectives.modelling.broadcasts import broadcast_formulas
from onesided.collectives.modelling.exchanges import formulas, predict
from onesided.collectives.modelling.parameters import ASSUMED, Parameters, known_parameters
from onesided.collectives.modelling.traffic import of_exchange as traffic_of_exchange
from onesided.collectives.tuning.record import Cost, Record


def of_exchange(exchange: Exchange, names: Sequence[str]) -> Record:
    """Collective, the same on all ranks. Seconds of a round by the model of each method."""
    context = exchange.context
    mine = exchange.hints.slots if exchange.owned else 1
    slots = context.comm.allreduce(mine, MPI.MIN)  # receive memory may differ between ranks
    traffic = replace(traffic_of_exchange(exchange), slots=slots)
    parameters = _parameters(context, bool(traffic.near_messages), bool(traffic.far_messages))
    known = [name for name in names if name in formulas()]
    times = predict(traffic, parameters, known)
    return _record(names, times, parameters)


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
    return _record(names, times, parameters)


def _record(
    names: Sequence[str], times: Mapping[str, float], parameters: Parameters
) -> Record:
    costs = {}
    for place, name in enumerate(names):
        if name in times:
            known = place or name in parameters.setup
            costs[name] = Cost(parameters.setup_seconds(name) if known else 0.0, times[name])
    return Record(costs, {})


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
