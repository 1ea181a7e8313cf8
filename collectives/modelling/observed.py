"""The traffic of a persistent exchange, gathered from all of its ranks."""

from __future__ import annotations

import numpy as np

from onesided.collectives.agreement import agree
from onesided.collectives.exchange import Exchange
from onesided.collectives.modelling.traffic import Traffic, of_rows, row_of


def of_exchange(exchange: Exchange) -> Traffic:
    """Collective. Of what a persistent exchange sends; the same object on every rank."""
    context = exchange.context
    node = min(exchange.node.rank_of)
    nodes = agree(context.comm, None, ("traffic", exchange.number), node)
    size = context.comm.size
    rows = []
    for side in (exchange.send, exchange.recv):
        line = np.zeros(size)
        for block in side.blocks:
            line[block.peer] += block.size * side.dtype.itemsize
        rows.append(row_of(line, nodes, context.comm.rank))
    everyone = agree(context.comm, None, ("traffic", exchange.number), rows)
    table = np.array(everyone)
    return of_rows(table[:, 0], table[:, 1], nodes, exchange.slots)
