"""Exchanges on several nodes: real ones, virtual ones, or emulated by an info key."""

from __future__ import annotations

import numpy as np
from cases import parameters, ranks
from exchange_data import Vector

from onesided.collectives.context import Context
from onesided.collectives.program import CALL, COPY
from onesided.collectives.schedule import Put
from onesided.collectives.transports.lock import Lock


def info_of(options):
    return {"ranks_per_node": options["ranks_per_node"]} if "ranks_per_node" in options else None


@ranks(at_least=4)
def case_who_shares_a_node(comm, options):
    """The emulation never joins what is apart, and separates what it is told to."""
    whole = Context.of(comm).node()
    one_by_one = Context.of(comm).node(1)
    assert one_by_one.ranks == [comm.rank]
    assert set(Context.of(comm).node(2).ranks) <= set(whole.ranks)
    if "ranks_per_node" in options:
        assert len(Context.of(comm).node(int(options["ranks_per_node"])).ranks) == int(
            options["ranks_per_node"]
        )


def issued(transport):
    """What a round does for other ranks, in this order; the block for the rank itself is last."""
    if isinstance(transport, Lock):  # whose rounds go from target to target
        return [kind for delivery in transport._targets
                for kind, steps in (("put", delivery.puts[0]), ("store", delivery.stores[0]))
                for _ in steps]
    (chain,) = transport.plans()[0]
    kinds = [{CALL: "put", COPY: "store"}[step[0]] for step in chain
             if step[0] == COPY or isinstance(getattr(step[1], "__self__", None), Put)]
    assert kinds.pop() == "store"
    return kinds


@ranks(at_least=4)
@parameters(method=["rma-fence-hier", "rma-lock-hier"])
def case_off_node_puts_come_first(comm, method, options):
    """Algorithm 2: all Puts to other nodes are issued before anything is stored on this one."""
    info = info_of(options) or {"ranks_per_node": "2"}
    exchange = Vector(comm, np.full((comm.size, comm.size), 3), method, info=info)
    near = len(Context.of(comm).node(int(info["ranks_per_node"])).ranks)
    expected = ["put"] * (comm.size - near) + ["store"] * (near - 1)
    assert issued(exchange.request.transport) == expected
    exchange.round(1)
    exchange.free()
