"""``onesided minimd`` inside a job: ways, process grids, growing rooms, blow-ups, empty ranks."""

from __future__ import annotations

import os
import tempfile
import threading

import numpy as np
import pytest
from cases import parameters, ranks
from command_runs import need_threads, run_command
from mpi4py import MPI

from onesided.apps.bench.race import Stopwatch
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser
from onesided.apps.miniapps import minimd, minimd_links, minimd_stage
from onesided.apps.miniapps import minimd_simulation as simulation_module
from onesided.apps.miniapps.halos import Persistent
from onesided.apps.miniapps.minimd_atoms import Domain, migrate, process_grid
from onesided.apps.miniapps.minimd_links import Line, Links, ways
from onesided.apps.miniapps.minimd_problem import Problem
from onesided.apps.miniapps.minimd_simulation import PARTS, Simulation
from onesided.apps.report.result import REFERENCE
from onesided.collectives import Grid, UnsupportedError

NUMPY = "--kernel numpy"


def run(comm, words):
    return run_command(comm, f"minimd {words}")


@parameters(way=list(ways()))
def case_every_way(comm, way):
    words = f"--shape 4 4 6 --steps 12 --neighbor-every 5 --print-every 6 {NUMPY} --repeats 2"
    words += " --verify"
    code, found = run(comm, f"{words} --comm {way}")
    assert code == 0, found
    row = next(row for row in found["rows"] if row["labels"]["method"] == way)
    if "reason" in row:
        assert way.endswith("-threads"), row
        return
    assert row["verified"] is True, row
    assert row["iterations"] == 2
    assert set(row["ratios"]) == {REFERENCE}
    assert row["parts"]["forces"] > 0
    assert [line["step"] for line in found["output"]] == [0, 6, 12]
    assert found["pattern"]["atoms"] == 384
    assert len(found["verdicts"]) == 2
    assert all(each["verified"] for each in found["verdicts"].values()), found["verdicts"]


#: Temperature, potential energy and pressure, as Mantevo's known good output has them.
MANTEVO = {
    0: (1.440000, -6.773368, -5.019973),
    100: (0.7208599, -5.701261, 0.5236926),
}


def case_output_of_mantevo(comm):
    """The standard problem with 4,000 atoms: every digit that the reference prints."""
    code, found = run(comm, "--shape 10 10 10 --steps 100 --repeats 1 --comm rma-notify")
    assert code == 0
    lines = {line["step"]: (line["T"], line["U"], line["P"]) for line in found["output"]}
    assert lines.keys() == MANTEVO.keys()
    for step, numbers in MANTEVO.items():
        assert lines[step] == pytest.approx(numbers, rel=1e-6, abs=6e-8), step


@parameters(axis=[0, 1, 2])
def case_slabs(comm, axis):
    """Each axis is cut in turn; atoms cross its ends."""
    cells, grid = ["4"] * 3, ["1"] * 3
    cells[axis], grid[axis] = str(4 * comm.size), str(comm.size)
    words = f"--shape {' '.join(cells)} --grid {' '.join(grid)} --steps 20 --temperature 4 {NUMPY}"
    words += " --verify --repeats 2 --neighbor-every 5"
    code, found = run(comm, f"{words} --comm fence,rma-notify")
    assert code == 0, found["remarks"]
    assert found["pattern"]["grid"] == [int(part) for part in grid]


def case_ranks_without_atoms(comm):
    words = f"--shape 2 2 {comm.size} --density 0.001 --grid 1 1 {comm.size} --steps 40"
    code, found = run(comm, f"{words} {NUMPY} --verify --comm fence,rma-notify,halo")
    assert code == 0, found["remarks"]
    narrow = f"--shape 1 1 1 --density 0.0003 --grid {comm.size} 1 1 --steps 3 {NUMPY}"
    code, found = run(comm, f"{narrow} --comm fence,rma-notify")
    assert code == 0
    if comm.size > 2:
        assert found["pattern"]["atoms of a rank"][0] == 0


@ranks(at_least=2)
def case_rooms_grow(comm):
    """Ghosts for which there is no room: all links are planned again, and the state is right."""
    spare = minimd_links.SPARE, minimd_links.LEAST
    minimd_links.SPARE, minimd_links.LEAST = 1.0, 0  # the lattice has few ghosts within 2.51
    try:
        words = f"--shape 6 4 4 --skin 0.01 --steps 10 --neighbor-every 1 {NUMPY} --verify"
        words += " --repeats 1"
        words += " --comm fence,rma-fence,p2p"
        code, found = run(comm, words)
    finally:
        minimd_links.SPARE, minimd_links.LEAST = spare
    assert code == 0, found["remarks"]
    assert all(row["plans"] > 1 for row in found["rows"]), found["rows"]


@ranks(at_least=2)
@parameters(way=[REFERENCE, "fence", "fence-threads", "rma-notify", "halo"])
def case_links_bring_what_was_sent(comm, way):
    """Different numbers for both neighbors, in many rounds, between all pairs of a line."""
    if way == "fence-threads":
        need_threads()
    low, high = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    room = 10
    link = ways()[way](Line(comm, (low, high), room))
    for number in range(20):
        mark = 100.0 * number
        few, many = number // 8, 7 - number // 8  # as after new lists
        link.out[0][:few] = mark + comm.rank + np.arange(few)
        link.out[1][:many] = -(mark + comm.rank + np.arange(many))
        from_low, from_high = link.exchange((few, many), (many, few))
        assert (from_low[:many] == -(mark + low + np.arange(many))).all()
        assert (from_high[:few] == mark + high + np.arange(few)).all()
    from_low = from_high = None
    link.free()


def simulation(comm, cells, **changes):
    problem = Problem(cells=cells, **changes)
    return Simulation(comm, problem, process_grid(problem, comm.size, []), "numpy")


def case_ghosts_are_all_atoms_within_reach(comm):
    one = simulation(comm, (6, 6, 6))
    atoms, problem = one.atoms, one.problem
    own = comm.allgather(atoms.x[:, : atoms.own])
    every = np.concatenate(own, axis=1)
    steps = np.array([(i, j, k) for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)])
    images = (every[:, :, None] + (steps * problem.lengths).T[:, None, :]).reshape(3, -1)
    low, high = one.domain.low[:, None], one.domain.high[:, None]
    inside = ((images >= low) & (images < high)).all(axis=0)
    reach = problem.reach
    near = ((images >= low - reach) & (images < high + reach)).all(axis=0) & ~inside
    expected = {tuple(place) for place in np.round(images[:, near], 9).T + 0.0}
    ghosts = np.round(atoms.x[:, atoms.own : atoms.total], 9).T + 0.0
    assert {tuple(place) for place in ghosts} == expected
    assert len(ghosts) == len(expected)
    one.free()


def case_atoms_find_their_ranks(comm):
    """Columns that may be anywhere next to their rank come where they belong, unchanged."""
    problem = Problem(cells=(8, 8, 8))
    grid = process_grid(problem, comm.size, [])
    cart = comm.Create_cart(grid, [True] * 3)
    domain = Domain(problem.lengths, grid, tuple(cart.coords))
    parts = Grid(cart, grid, 0, periodic=True, dims=grid,
                 bounds=[(0.0, length) for length in problem.lengths])
    draw = np.random.default_rng(comm.rank)
    width = (domain.high - domain.low)[:, None]
    x = domain.low[:, None] + width * draw.uniform(-0.9, 1.9, (3, 200))
    x %= np.array(problem.lengths)[:, None]
    numbers = 200.0 * comm.rank + np.arange(200)[None]
    state = np.concatenate([x, draw.standard_normal((3, 200)), numbers])
    mine = migrate(state, parts)
    assert (mine[:3] >= domain.low[:, None]).all()
    assert (mine[:3] < domain.high[:, None]).all()
    sent, come = (np.concatenate(comm.allgather(each), axis=1) for each in (state, mine))
    assert sent.shape == come.shape
    assert (sent[:, np.argsort(sent[6])] == come[:, np.argsort(come[6])]).all()
    parts.Free()
    cart.Free()


def case_momentum_is_conserved(comm):
    one = simulation(comm, (6, 6, 6), steps=30)
    made = Links(one.cart, one.axes, ways()["rma-notify"], {}, one.needed)
    one.resume(one.atoms.state(), 0, made, {part: Stopwatch() for part in PARTS})
    one.advance(30)
    momentum = one.atoms.v[:, : one.atoms.own].sum(axis=1)
    comm.Allreduce(MPI.IN_PLACE, momentum)
    assert np.abs(momentum).max() < 1e-9
    made.free()
    one.free()


@ranks(at_least=2)
def case_wrong_ghosts_are_noticed(comm):
    finish = Persistent.finish

    def wrong(self):
        ghosts = finish(self)
        ghosts[0] += 1e-9 * (comm.rank == 0)
        return ghosts

    Persistent.finish = wrong
    try:
        code, found = run(comm, f"--shape 6 6 6 --steps 5 {NUMPY} --comm p2p,fence")
    finally:
        Persistent.finish = finish
    assert code == 1
    verified = {row["labels"]["method"]: row["verified"] for row in found["rows"]}
    assert verified == {REFERENCE: True, "p2p": False, "fence": True}
    assert any("WRONG: p2p came to another state" in remark for remark in found["remarks"])


@ranks(at_least=2)
def case_a_way_that_only_some_ranks_have(comm):
    """All ranks give up, and what was made is given back."""
    made = Persistent.__init__

    def broken(self, need, method):
        if method == "p2p":
            raise UnsupportedError("not here")
        made(self, need, method)

    Persistent.__init__ = broken
    try:
        code, found = run(comm, f"--shape 6 6 6 --steps 2 {NUMPY} --comm p2p,rma-notify")
    finally:
        Persistent.__init__ = made
    assert code == 0
    rows = {row["labels"]["method"]: row for row in found["rows"]}
    assert "not here" in rows["p2p"]["reason"]
    assert rows["rma-notify"]["verified"] is True


@ranks(at_least=2)
def case_every_neighbor_has_a_thread_of_its_own(comm):
    """The calling thread puts nothing; both sides of a line of two ranks are one neighbor."""
    need_threads()
    low, high = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    link = ways()["fence-threads"](Line(comm, (low, high), 4))
    threads = []

    def noted(put):
        def call():
            threads.append(threading.get_ident())
            put()

        return call

    link.exchange((1, 1), (1, 1))
    works = link.halo._works[0]
    works[1:] = [noted(work) for work in works[1:]]
    link.exchange((1, 1), (1, 1))
    assert len(threads) == len(set(threads)) == len({low, high})
    assert threading.get_ident() not in threads
    link.free()


@ranks(at_least=2)
def case_a_thread_level_too_low(comm):
    """The way is left out with a reason; also where only one rank has too low a level."""
    query = MPI.Query_thread
    for who in (range(comm.size), [comm.size - 1]):
        if comm.rank in who:
            MPI.Query_thread = lambda: MPI.THREAD_SERIALIZED
        try:
            words = f"--shape 6 6 6 --steps 2 {NUMPY} --comm fence,fence-threads"
            code, found = run(comm, words)
        finally:
            MPI.Query_thread = query
        assert code == 0
        reasons = {row["labels"]["method"]: row.get("reason", "") for row in found["rows"]}
        assert reasons[REFERENCE] == reasons["fence"] == ""
        assert "this MPI runs with MPI_THREAD_SERIALIZED" in reasons["fence-threads"]


def case_an_input_file_that_only_rank_0_can_read(comm):
    """What is wrong with it is raised on all ranks."""
    path = comm.bcast(tempfile.mkstemp()[1] if comm.rank == 0 else None)
    name = path if comm.rank == 0 else "no-such-file"
    for text, fragment in (("a\nb\nmetal\n", "3 lines; MiniMD's input has"), ("\xff", "no text")):
        if comm.rank == 0:
            with open(path, "w", encoding="latin-1") as file:
                file.write(text)
        options = build_parser().parse_args(["minimd", name])
        with pytest.raises(CommandError, match=fragment):
            minimd.run(comm, options)
    if comm.rank == 0:
        os.unlink(path)


def case_rank_0_has_no_room_to_verify(comm):
    alone = minimd_stage.alone

    def fail(*given):
        raise MemoryError("no room for all atoms")

    minimd_stage.alone = fail
    try:
        with pytest.raises(CommandError, match="no room for all atoms"):
            run(comm, f"--shape 6 6 6 --steps 2 {NUMPY} --verify --comm fence")
    finally:
        minimd_stage.alone = alone


@ranks(at_least=2)
def case_one_rank_has_no_room_for_its_atoms(comm):
    lattice = simulation_module.lattice

    def fail(*given):
        raise MemoryError("no room for atoms here")

    if comm.rank == comm.size - 1:
        simulation_module.lattice = fail
    try:
        with pytest.raises(CommandError, match="no room for atoms here"):
            run(comm, f"--shape 6 6 6 --steps 2 {NUMPY} --comm fence")
    finally:
        simulation_module.lattice = lattice


BLOW_UPS = {
    "moves": "--dt 1 --print-every 0",
    "energy": "--dt 0.05 --print-every 1 --neighbor-every 50",
    "hot": "--dt 0.02 --temperature 1e6 --print-every 1",
}


@parameters(which=list(BLOW_UPS))
def case_blow_up(comm, which):
    words = f"minimd --shape 6 6 6 --steps 100 {NUMPY} {BLOW_UPS[which]} --comm fence,rma-notify"
    options = build_parser().parse_args(words.split())
    with pytest.raises(CommandError, match=r"step \d+: .* is too long"):
        minimd.run(comm, options)


MISTAKES = {
    "method": ("--comm fence,magic", "no method 'magic'; the methods are two-sided, fence"),
    "kernel": ("--kernel magic", "no kernel 'magic'"),
    "small": ("--shape 1 9 9", "1 x 9 x 9 lattice cells are too few for"),
    "grid": ("--grid 7 11", "cannot be arranged like this"),
    "file": ("no-such-file", "no-such-file: No such file"),
    "ranks": ("--scaling weak --ranks-list 99", "--ranks-list 99: the job has"),
    "list": ("--ranks-list 1", "--ranks-list is for --scaling"),
}


@parameters(mistake=list(MISTAKES))
def case_mistake(comm, mistake):
    words, fragment = MISTAKES[mistake]
    options = build_parser().parse_args(["minimd", *words.split()])
    with pytest.raises(CommandError, match=fragment):
        minimd.run(comm, options)


def case_scaling(comm):
    """Cells are those of a rank; strong scaling has the box of the largest number of ranks."""
    code, found = run(
        comm, f"--shape 4 4 4 --scaling weak strong --steps 4 {NUMPY} --comm fence --verify"
    )
    assert code == 0
    counts = sorted({row["labels"]["ranks"] for row in found["rows"]})
    assert counts[0] == 1
    assert counts[-1] == comm.size
    for row in found["rows"]:
        shares = row["labels"]["ranks"] if row["labels"]["scaling"] == "weak" else comm.size
        assert row["atoms"] == 256 * shares
        assert row["efficiency"] > 0
    for name in ("weak", "strong"):
        mine = [row for row in found["rows"] if row["labels"]["scaling"] == name]
        assert {row["efficiency"] for row in mine if row["labels"]["ranks"] == 1} == {1.0}
        assert [line["ranks"] for line in found[f"overhead_{name}"]] == counts
        assert {line["ranks"] for line in found[f"output_{name}"]} == set(counts)
    assert len(found["verdicts"]) == 2
