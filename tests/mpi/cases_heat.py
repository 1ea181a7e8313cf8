"""``onesided heat`` inside a job: ways, threads, boundaries, uneven blocks, faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import parameters, ranks
from command_runs import need_threads, run_command
from mpi4py import MPI

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser
from onesided.apps.solvers import heat
from onesided.apps.solvers.heat_halos import Exchange, Strip, ways

SOME = "blocking,persistent,halo,rma-notify"


def run(comm, words):
    return run_command(comm, f"heat --verify {words}")


@parameters(way=list(ways()))
def case_every_way(comm, way):
    code, found = run(comm, f"--shape 23 18 --steps 9 --repeats 3 --boundary periodic --comm {way}")
    assert code == 0
    row = next(row for row in found["rows"] if row["method"].split()[0] == way)
    assert row["verified"] is True, row
    assert row["iterations"] == 3
    assert set(row["ratios"]) == {"persistent"}
    assert row["parts"]["compute"] > 0
    assert row["parts"]["communication"] > 0


GRIDS = {
    "walls": "--shape 30 17",
    "periodic": "--shape 16 19 --boundary periodic",
    "both": "--shape 19 23 --boundary periodic fixed --dtype float32",
    "rows": "--shape 12 300 --boundary periodic --grid auto 1",
    "columns": "--shape 11 280 --boundary fixed periodic --grid 1 auto",
    "thin": "--shape 4 4 --boundary periodic",
    "three": "--shape 11 10 9 --boundary fixed periodic periodic",
    "last": "--shape 9 8 70 --boundary periodic --grid 1 1 auto --dtype float32",
    "pieces": "--shape 40 300 --boundary periodic --pieces 5",
    "tiles": "--shape 300 400 --boundary periodic",
}


@parameters(which=list(GRIDS), threads=[1, 3])
def case_grids(comm, which, threads):
    if threads > 1:
        need_threads()
    words = f"{GRIDS[which]} --threads {threads} --steps 11 --repeats 2 --comm {SOME}"
    code, found = run(comm, words)
    assert code == 0
    verified = [row["verified"] for row in found["rows"] if "reason" not in row]
    assert verified == [True] * 4, found["rows"]
    assert found["pattern"]["halo_bytes"] > 0 or comm.size == 1


@ranks(at_least=2)
def case_wrong_ghosts_are_noticed(comm):
    """One way whose ghosts are not brought up to date is told apart from the others."""
    made, finish = Exchange.__init__, Exchange.finish

    def remembering(self, sides, method):
        made(self, sides, method)
        self.sides = sides

    def wrong(self, which):
        finish(self, which)
        for face in self.sides.faces:
            self.sides.arrays[which][face.recv] = 0.5

    Exchange.__init__, Exchange.finish = remembering, wrong
    try:
        code, found = run(comm, "--shape 32 33 --steps 5 --comm p2p,blocking")
    finally:
        Exchange.__init__, Exchange.finish = made, finish
    assert code == 1
    assert found["verified"] is False
    assert {row["method"]: row["verified"] for row in found["rows"]} == {
        "persistent": True,
        "p2p": False,
        "blocking": True,
    }
    assert any("WRONG: p2p differ" in remark for remark in found["remarks"])


@parameters(bound=[0.0, 1e9])
def case_a_missed_target_is_a_failure_if_asked(comm, bound):
    """On the grids that have targets, for those ways that have one."""
    before = heat.TARGETS, heat.WITH_TARGET
    heat.TARGETS = {name: replace(aim, bound=bound) for name, aim in heat.TARGETS.items()}
    heat.WITH_TARGET = ((16, 18),)
    try:
        for shape, strict, expected in (("16 18", "", 0), ("16 18", "--strict", bound == 0.0),
                                        ("16 17", "--strict", 0)):  # fmt: skip
            code, found = run(comm, f"--shape {shape} --steps 4 --repeats 2 --comm halo {strict}")
            assert code == expected
            targets = {row["method"]: row.get("target") for row in found["rows"]}
            assert targets == {"persistent": None, "halo": bound if shape == "16 18" else None}
    finally:
        heat.TARGETS, heat.WITH_TARGET = before


def case_a_picture_that_cannot_be_written_is_the_error_of_all(comm):
    def full(*_):
        raise OSError(28, "No space left on device", "heat.png")

    before, heat.save_slice = heat.save_slice, full
    options = build_parser().parse_args("heat --shape 9 8 --steps 2 --picture heat.png".split())
    try:
        with pytest.raises(CommandError, match="No space left on device"):
            heat.run(comm, options)
    finally:
        heat.save_slice = before


@ranks(at_least=2)
def case_last_bits_are_noticed(comm):
    unpack = Strip.unpack

    def flip(self):
        unpack(self)
        bits = self.layer.view(f"u{self.layer.itemsize}")
        if comm.rank == 1:
            bits ^= 1

    Strip.unpack = flip
    try:
        code, found = run(comm, "--shape 32 33 --steps 5 --comm persistent")
    finally:
        Strip.unpack = unpack
    assert code == 1
    assert 0 < found["rows"][0]["error"] < 0.2


def case_a_temperature_that_is_not_finite(comm):
    words = "heat --shape 16 16 --dtype float32 --peak 3e38 --steps 4"
    options = build_parser().parse_args(words.split())
    with pytest.raises(CommandError, match="not finite after 4 steps"):
        heat.run(comm, options)


def case_threads_need_their_level(comm):
    query = MPI.Query_thread
    MPI.Query_thread = lambda: MPI.THREAD_SERIALIZED
    try:
        options = build_parser().parse_args(["heat", "--threads", "2"])
        with pytest.raises(CommandError, match="needs MPI_THREAD_MULTIPLE"):
            heat.run(comm, options)
    finally:
        MPI.Query_thread = query


MISTAKES = {
    "unstable": ("--shape 10 19 --dt 1", "--dt 1 is unstable: .* = 0.000625"),
    "axes": ("--shape 10", "1 axes, two or three"),
    "boundaries": ("--boundary fixed fixed periodic", "3 conditions for 2 axes"),
    "method": ("--comm blocking,magic", "no method 'magic'; the methods are blocking, "),
    "grid": ("--grid 7 11", "cannot be arranged as"),
    "long grid": ("--grid 1 1 1", "not a number of ranks for each of 2 axes"),
    "info": ("--comm rma-notify --info slots=9", "slots"),
    "save": ("--save-every 2", "--save-every needs --checkpoint"),
    "restart": ("--restart none.h5", "none.h5"),
}


@parameters(mistake=list(MISTAKES))
def case_mistake(comm, mistake):
    words, fragment = MISTAKES[mistake]
    options = build_parser().parse_args(["heat", *words.split()])
    with pytest.raises(CommandError, match=fragment):
        heat.run(comm, options)


@ranks(at_least=2)
def case_more_ranks_than_points(comm):
    options = build_parser().parse_args(f"heat --shape 1 9 --grid {comm.size}".split())
    with pytest.raises(CommandError, match="is too small for"):
        heat.run(comm, options)


def case_the_largest_step_is_stable(comm):
    """r = 1 / (2 d), as the message names it: the temperature never rises."""
    code, found = run(comm, "--shape 10 19 --dt 0.000625 --steps 40 --comm blocking")
    assert code == 0
    words = next(line for line in found["remarks"] if line.startswith("After 40 steps"))
    low, high = (float(word.rstrip(",")) for word in np.array(words.split())[[-6, -4]])
    assert 0 <= low < high < 0.5
