"""What a profile tells of rounds, on all ranks; and that it costs nothing where there is none."""

from __future__ import annotations

import json

import numpy as np
from cases import parameters, ranks
from errors import raises
from exchange_data import Vector, names, tables

from onesided.collectives import (
    Allreduce_init,
    Bcast_init,
    HaloExchange,
    Precv_init,
    Psend_init,
    Startall,
    Waitall,
    profile,
)

ROUNDS = 7


class Nameless:
    def __str__(self):
        raise ArithmeticError("no name")


@parameters(method=names, verb=["Wait", "Test"])
def case_rows(comm, method, verb):
    """Requests made before, in and freed in the block; rounds outside of it do not count."""
    moved = Vector(comm, tables(comm.size)["uneven"] + 1, method)
    moved.request.label = "first"
    raises(ArithmeticError, lambda: setattr(moved.request, "label", Nameless()), "no name")
    moved.round(0)
    with profile(comm) as times:
        other = Vector(comm, tables(comm.size)["uneven"] + 1, "p2p")
        for turn in range(ROUNDS):
            moved.fill(turn)
            moved.request.Start()
            if verb == "Test":
                while not moved.request.Test():
                    pass
            moved.check(turn, moved.request.Wait())
        other.round(1)
        other.free()
        assert not times.rows
    moved.round(1)
    rows = {row["label"]: row for row in times.rows}
    assert set(rows) == {"", "first"}, rows
    first = rows["first"]
    assert first["what"] == f"Alltoallv by {moved.request.method}"
    assert first["rounds"] == {"max": ROUNDS, "ratio": 1.0}, first
    assert rows[""]["rounds"]["max"] == 1
    most = max(comm.allgather(sum(moved.send.counts) * 8))
    assert first["nbytes"]["max"] == ROUNDS * most, first
    for name in ("in_start", "in_wait"):
        assert first[name]["max"] > 0, first
        assert first[name]["ratio"] >= 1, first
    assert first["waiting"]["max"] <= first["in_wait"]["max"]
    assert json.loads(times.as_json()) == times.rows == comm.bcast(times.rows)
    assert str(times).count("\n") == 2
    before = moved.request.in_start
    moved.fill(2)
    moved.request.Start()
    assert moved.request.in_start == before, "timed without a profile"
    with profile(comm) as again:
        moved.check(2, moved.request.Wait())
        moved.request.label = "second"
        other = Vector(comm, tables(comm.size)["uneven"] + 1, "p2p")
        other.round(3)
        other.free()
    rows = {row["label"]: row for row in again.rows}
    assert set(rows) == {"", "second"}, rows
    assert rows[""]["requests"] == 1, "those of the profile before are counted"
    assert rows[""]["rounds"]["max"] == 1
    assert rows["second"]["rounds"] == {"max": 0, "ratio": None}, rows
    assert rows["second"]["in_wait"]["max"] > 0
    moved.free()


@ranks(at_least=2)
@parameters(what=["Bcast", "Allreduce", "Psend", "halo exchange"])
def case_other_requests(comm, what):
    data, ring = np.ones(1000), comm.Create_cart([comm.size], [True])
    left, right = ring.Shift(0, 1)
    if what == "Bcast":
        requests = [Bcast_init(comm, data, 0)]
    elif what == "Allreduce":
        requests = [Allreduce_init(comm, data, np.empty(1000))]
    elif what == "Psend":
        requests = [Psend_init(comm, data, 4, right), Precv_init(comm, np.empty(1000), 2, left)]
    else:
        requests = [HaloExchange(ring, np.ones(2000), 500)]
    with profile(comm) as outer, profile(comm) as inner:
        for _ in range(ROUNDS):
            Startall(requests)
            if what == "Psend":
                requests[0].Pready_range(0, 3)
            Waitall(requests)
    names = [what if what == "halo exchange" else f"{what} by {requests[0].method}"]
    if what == "Psend":
        names.insert(0, f"Precv by {requests[1].method}")
    assert [row["what"] for row in inner.rows] == names
    assert inner.rows[-1]["nbytes"]["max"] == ROUNDS * data.nbytes
    assert outer.rows[-1]["rounds"]["max"] == ROUNDS
    for request in requests:
        request.Free()
    ring.Free()
