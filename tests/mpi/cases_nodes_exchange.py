"""Exchanges on several nodes: real ones, virtual ones, or emulated by an info key."""

from __future__ import annotations

import time

import numpy as np
from cases import parameters, ranks
from exchange_data import MEMORY, Boxes, Vector, any_order, names, tables

from onesided.collectives import Startall
from onesided.collectives.context import Context
from onesided.collectives.program import CALL, COPY
from onesided.collectives.schedule import Put
from onesided.collectives.transports.lock import Lock


def info_of(options):
    return {"ranks_per_node": options["ranks_per_node"]} if "ranks_per_node" in options else None


@parameters(method=names, memory=MEMORY)
def case_data_across_nodes(comm, method, memory, options):
    for name in ("uneven", "no self", "only from rank 0", "one heavy source", "to the next"):
        exchange = Vector(comm, tables(comm.size)[name], method, memory, info_of(options))
        for turn in range(3):
            if turn % comm.size == comm.rank:
                time.sleep(0.002)
            exchange.round(turn)
        exchange.free()


@parameters(method=names, memory=MEMORY)
def case_boxes_across_nodes(comm, method, memory, options):
    for permute in (False, True):
        exchange = Boxes(comm, (9, 7, 3), method, memory, info_of(options), permute)
        for turn in range(3):
            exchange.round(turn)
        exchange.free()


@parameters(method=any_order, memory=["own", "window"])
def case_any_order_across_nodes(comm, method, memory, options, seed):
    exchanges = [
        Vector(comm, tables(comm.size)["uneven"] + i, method, memory, info_of(options))
        for i in range(4)
    ]
    for turn in range(4):
        order = np.random.default_rng([seed, comm.rank, turn]).permutation(len(exchanges))
        for exchange in exchanges:
            exchange.fill(turn)
        Startall([exchanges[i].request for i in order])
        for i in order[::-1]:
            exchanges[i].check(turn, exchanges[i].request.Wait())
    for exchange in exchanges:
        exchange.free()


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
