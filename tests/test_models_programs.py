"""Programs on many ranks by the model: known cases, what limits them, the command."""

from __future__ import annotations

import json
from dataclasses import replace

import commands
import numpy as np
import pytest

from onesided.apps.modelling.options import PROGRAMS as NAMES
from onesided.apps.modelling.programs import (
    COMPLEX,
    PARTS,
    PROGRAMS,
    REAL,
    ROW_BYTES,
    Core,
    Machine,
    Stencil,
)
from onesided.collectives.errors import PatternError
from onesided.collectives.modelling.exchanges import predict
from onesided.collectives.modelling.loggp import PiecewiseLogGP, Segment
from onesided.collectives.modelling.parameters import MACHINES, Level
from onesided.collectives.modelling.traffic import Traffic, uniform

QUIET = Core(noise=0.0)
HERE = MACHINES["gigabit"]
METHODS = ["mpi", "p2p", "rma-notify", "rma-fence", "rma-lock-paper"]
POINTS = 64.0**3


def machine(ranks, per_node=4, parameters=HERE, core=QUIET):
    return Machine(parameters, core, ranks, per_node)


def scaled(transfer, name, factor):
    """The same with one of LogGP's parameters larger."""
    segments = [
        Segment(each.start, replace(each.loggp, **{name: factor * getattr(each.loggp, name)}))
        for each in transfer.segments
    ]
    return PiecewiseLogGP(tuple(segments), transfer.ends)


def slower(name, factor):
    """A machine on whose network one thing takes longer."""
    level: Level = HERE.network
    if name == "barrier":
        return replace(HERE, network=replace(level, barrier=factor * level.barrier))
    changed = {
        kind: scaled(getattr(level, kind), name, factor)
        for kind in ("messages", "puts", "collective") if getattr(level, kind) is not None
    }  # fmt: skip
    return replace(HERE, network=replace(level, **changed))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_parts_are_the_whole(name, method):
    for ranks in (1, 2, 6, 64, 512):
        found = PROGRAMS[name](machine(ranks, core=Core()), POINTS, method)
        assert set(found.parts) == set(PARTS)
        assert min(found.parts.values()) >= 0
        assert sum(found.parts.values()) == pytest.approx(found.seconds, rel=1e-12)
        assert (found.parts["latency"] > 0) == (ranks > 1) or found.parts["compute"] > 0


@pytest.mark.parametrize("method", METHODS)
def test_two_ranks_of_a_node_are_the_formula(method):
    """The round of one face each, beside the rows that need none; nobody is late."""
    side = 64.0
    found = PROGRAMS["spmv"](machine(2), POINTS, method)
    face = REAL * side * side
    traffic = Traffic(2, 1, 1.0, face, 0.0, 0.0, 0.0, 0.0, 0.0)
    round_ = predict(traffic, HERE, [method])[method]
    rows = POINTS / 2
    whole = rows * ROW_BYTES / QUIET.memory
    inner = (side / 2 - 2) * (side - 2) ** 2 / rows
    assert found.seconds == pytest.approx(max(inner * whole, round_) + (1 - inner) * whole)
    nothing = PROGRAMS["spmv"](machine(2, core=replace(QUIET, memory=1e30)), POINTS, method)
    assert nothing.seconds == pytest.approx(round_)


@pytest.mark.parametrize("method", METHODS)
def test_a_transform_on_one_row_of_ranks_is_one_exchange_of_all(method):
    """Four ranks of a node that compute nothing: two exchanges of two ranks, as the formula."""
    fast = replace(QUIET, memory=1e30, operations=1e30)
    found = PROGRAMS["fft"](machine(2, core=fast), POINTS, method)
    expected = predict(uniform(2, 2, COMPLEX * POINTS / 4), HERE, [method])[method]
    assert found.seconds == pytest.approx(expected)
    assert found.limit == "bandwidth"


def test_the_blocks_of_a_stencil():
    """3 x 2 x 2 ranks, nodes of two: neighbors as counted by hand, and each sees the other."""
    found = Stencil.of(machine(12, per_node=2), 12.0**3)
    ranks = np.arange(12)
    for axis in range(3):
        up, down = found.neighbors[:, 2 * axis + 1], found.neighbors[:, 2 * axis]
        inside = up != ranks
        assert inside.any()
        assert (down[up[inside]] == ranks[inside]).all()
    counts = found.traffic.near_messages + found.traffic.far_messages
    assert sorted(counts) == [3.0] * 8 + [4.0] * 4  # corners, and the middle of 3
    assert (found.traffic.near_messages == 1).all()  # along the last axis
    faces = {0: 6 * 6, 1: 4 * 6, 2: 4 * 6}
    assert found.traffic.near_bytes == pytest.approx(REAL * faces[2])
    assert found.traffic.far_bytes[0] == REAL * (faces[0] + faces[1])
    assert found.traffic.link_bytes[0] == 2 * found.traffic.far_bytes[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_slower_takes_longer(name):
    for method in METHODS:
        base = PROGRAMS[name](machine(64), POINTS, method).seconds
        for changed in ("latency", "overhead", "gap", "byte_gap", "barrier"):
            more = PROGRAMS[name](machine(64, parameters=slower(changed, 8.0)), POINTS, method)
            assert more.seconds >= base, (method, changed)
        for core in (replace(QUIET, memory=1e8), replace(QUIET, noise=0.3)):
            assert PROGRAMS[name](machine(64, core=core), POINTS, method).seconds > base


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_made_slow_is_named_as_the_limit(name):
    cases = {
        "latency": slower("latency", 1e5),
        "bandwidth": slower("byte_gap", 1e5),
        "compute": HERE,
        "synchronization": slower("barrier", 1e5),
    }
    for limit, parameters in cases.items():
        core = replace(QUIET, memory=1e5) if limit == "compute" else QUIET
        method = "rma-fence" if limit == "synchronization" else "p2p"
        found = PROGRAMS[name](machine(64, 4, parameters, core), POINTS, method)
        assert found.limit == limit


def test_late_ranks_delay_their_neighbors_more_and_more():
    """Noise costs more than its mean, and most where all wait for all."""
    quiet, loud = (
        machine(512, 4, MACHINES["infiniband"], replace(QUIET, noise=noise)) for noise in (0.0, 0.5)
    )
    points = 256.0**3
    for name in ("spmv", "cg"):
        known, found = (PROGRAMS[name](each, points, "p2p") for each in (quiet, loud))
        assert found.parts["compute"] == pytest.approx(1.5 * known.parts["compute"], rel=0.02)
        if name == "spmv":
            fenced = PROGRAMS[name](loud, points, "rma-fence")
            assert fenced.parts["synchronization"] > found.parts["synchronization"]
    assert found.parts["synchronization"] > known.seconds  # the latest of 512, twice


def test_mistakes():
    with pytest.raises(PatternError, match="computes nothing"):
        Core(memory=0.0)
    for name, program in PROGRAMS.items():
        with pytest.raises(PatternError, match="points for 4096 ranks"):
            program(machine(4096), 8.0 if name != "fft" else 64.0, "p2p")


def test_the_command_follows_a_program(tmp_path):
    pytest.importorskip("matplotlib", reason="images need matplotlib")
    assert tuple(PROGRAMS) == NAMES
    out, picture = tmp_path / "out.json", tmp_path / "out.png"
    words = ["--program", "cg", "--network", "gigabit", "--ranks-list", "1:65536", "--shape", "24"]
    words += ["--comm", "p2p,rma-fence", "--per-node", "8", "--json", str(out)]
    finished = commands.onesided("model", *words, "--picture", str(picture))
    assert finished.code == 0, finished
    assert "An iteration of cg, 1.38e+04 points in all: gigabit" in finished.out
    assert "* extrapolated: more than 4 times beyond what was measured: 2 ranks" in finished.out
    rows = json.loads(out.read_text())["rows"]
    assert [row["ranks"] for row in rows] == [2**k for k in range(13)]  # then no rank has a point
    assert [row["extrapolated"] for row in rows] == [row["ranks"] > 8 for row in rows]
    assert (rows[0]["limit"], rows[-1]["limit"]) == ("compute", "synchronization")
    for row in rows:
        assert row["seconds"][row["fastest"]] == min(row["seconds"].values())
        assert sum(row["parts"]["p2p"].values()) == pytest.approx(row["seconds"]["p2p"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    finished = commands.onesided("model", *words, "--scaling", "weak")
    assert finished.code == 0, finished
    rows = json.loads(out.read_text())["rows"]
    assert [row["points"] for row in rows] == [24**3 * 2**k for k in range(17)]
    times = [row["seconds"]["p2p"] for row in rows]
    assert times == sorted(times)
    finished = commands.onesided("model", "--program", "fft", "--shape", "1", "--ranks-list", "8")
    assert finished.code == 2, finished
    assert "no number of ranks is possible: 1 points for 8 ranks" in finished.sentences[0]
