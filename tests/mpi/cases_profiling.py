"""What a profile tells of rounds, on all ranks; and that it costs nothing where there is none."""

from __future__ import annotations

import json

import numpy as np
from cases import parameters, ranks
from exchange_data import Vector, names, tables

from onesided.collectives import Allreduce_init, Bcast_init, profile

ROUNDS = 7


@parameters(method=names, verb=["Wait", "Test"])
def case_rows(comm, method, verb):
    """Requests made before, in and freed in the block; rounds outside of it do not count."""
    moved = Vector(comm, tables(comm.size)["uneven"] + 1, method)
    moved.request.label = "first"
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
    moved.round(2)
    assert moved.request.in_start == before, "timed without a profile"
    moved.free()


@ranks(at_least=2)
@parameters(what=["Bcast", "Allreduce"])
def case_other_collectives(comm, what):
    data = np.ones(1000)
    if what == "Bcast":
        request = Bcast_init(comm, data, 0)
    else:
        request = Allreduce_init(comm, data, np.empty(1000))
    with profile(comm) as outer, profile(comm) as inner:
        for _ in range(ROUNDS):
            request.Start()
            request.Wait()
    assert [row["what"] for row in inner.rows] == [f"{what} by {request.method}"]
    assert inner.rows[0]["nbytes"]["max"] == ROUNDS * data.nbytes
    assert outer.rows[0]["rounds"]["max"] == ROUNDS
    request.Free()
