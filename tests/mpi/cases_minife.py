"""``onesided minife`` inside a job: equations, ways, scaling, wrong ghosts, faults."""

from __future__ import annotations

import time
from argparse import Namespace
from math import prod

import numpy as np
import pytest
from cases import parameters, ranks, skip
from command_runs import need_threads, run_command
from mpi4py import MPI

from onesided.apps.cli.failures import CommandError
from onesided.apps.miniapps.halos import Fence, Need, TwoSided, ways
from onesided.apps.miniapps.minife import alone, compared, gathered
from onesided.apps.miniapps.minife_mesh import PROBLEMS, fits
from onesided.apps.miniapps.minife_system import System
from onesided.apps.miniapps.solving import Operator
from onesided.collectives import methods
from onesided.collectives.halo.faces import within

THREADED = ("fence-threads", "lock-all-threads")
#: Every way of the mini-applications, and some exchanges; others need more ranks to differ.
FEW = [*(way for way in ways() if way not in methods()), "rma-notify", "rma-fence", "auto"]


def run(comm, words):
    return run_command(comm, f"minife {words}")


@parameters(way=FEW)
def case_every_way(comm, way):
    _whole(comm, way)


@ranks(at_least=3)
@parameters(way=[way for way in ways() if way not in FEW])
def case_every_other_way(comm, way):
    _whole(comm, way)


def _whole(comm, way):
    """A run of the command with one way, and all that it tells."""
    if way in THREADED:
        need_threads()
    words = f"--shape 6 7 9 --levels 1 --iterations 12 --repeats 2 --verify --comm {way}"
    code, found = run(comm, words)
    assert code == 0, found["verdicts"]
    row = next(row for row in found["rows"] if row["labels"]["method"] == way)
    if "reason" in row:
        skip(f"{way}: {row['reason']}")
    assert row["verified"] is True, row
    assert row["iterations"] == 2
    assert row["cg_iterations"] == 12
    assert row["converged"] is True
    assert row["residual"] < 2e-10
    assert set(row["ratios"]) == {"two-sided"}
    assert set(row["parts"]) == {"exchange", "product", "sums", "vectors"}


MESHES = {
    "cube": ((6, 6, 6), "smooth", 0.0),
    "uneven": ((5, 8, 7), "hot-wall", 0.1),
    "rod": ((2, 3, 14), "smooth", 0.12),
    "small": ((2, 2, 2), "hot-wall", 0.0),
}


@parameters(mesh=list(MESHES))
def case_same_equations(comm, mesh):
    """Matrix and right side are those of one rank, in another order; zeros are stored as well."""
    elements, name, distortion = MESHES[mesh]
    if not fits(elements, comm.size):
        skip(f"{elements} elements cannot be cut for {comm.size} ranks")
    system = System(comm, elements, PROBLEMS[name], distortion)
    order = system.mesh.numbers(system.mesh.whole).reshape(-1)
    rows = system.matrix.gather()
    blocks = comm.gather((system.side, system.guess))
    if comm.rank == 0:
        one = System(MPI.COMM_SELF, elements, PROBLEMS[name], distortion)
        expected = one.matrix.gather()
        assert rows.nnz == expected.nnz == prod(3 * n - 2 for n in system.mesh.points)
        assert abs(rows[order][:, order] - expected).max() < 1e-14
        side, guess = (np.concatenate(parts)[order] for parts in zip(*blocks, strict=True))
        np.testing.assert_allclose(side, one.side, rtol=0, atol=1e-14)
        assert (guess == one.guess).all()
        one.Free()
    lengths = comm.allgather(len(system.side))
    assert lengths == system.mesh.partition.lengths().tolist()
    system.Free()


@parameters(way=["two-sided", "fence", "fence-threads", "rma-notify"])
def case_vectors_that_change_meanwhile(comm, way):
    """Many products with other numbers, ranks of other speeds; x is spoiled after every start."""
    if way in THREADED:
        need_threads()
    system = System(comm, (5, 4, 2 + 2 * comm.size), PROBLEMS["smooth"], 0.05)
    halo = ways()[way](Need(comm, system.matrix.pattern, system.matrix.dtype))
    operator = Operator(system.matrix, halo)
    rng = np.random.default_rng(comm.rank)
    count = len(system.side)
    begin = halo.start
    given = np.empty(count)

    def start(x):
        begin(x)
        given[:] = x

    halo.start = start
    found = np.empty(count)
    for turn in range(12):
        if turn % comm.size == comm.rank:
            time.sleep(0.002)
        x = rng.standard_normal(count)
        operator.multiply(x, found)
        expected = system.matrix @ x
        assert (given == x).all()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    operator.Free()
    operator.Free()
    assert operator.freed
    system.Free()


def case_the_slice_has_every_node_of_the_middle(comm):
    system = System(comm, (5, 4, 2 + comm.size), PROBLEMS["smooth"], 0.0)
    mesh = system.mesh
    whole = mesh.whole
    places = np.arange(mesh.nodes, dtype=float).reshape(mesh.points)
    mine = places[within(mesh.own(comm.rank), whole)].reshape(-1)
    middle = mesh.points[2] // 2
    found = gathered(system, mine, (*mesh.whole[:2], slice(middle, middle + 1)))
    if comm.rank == 0:
        assert (found[:, :, 0] == places[:, :, middle]).all()
    else:
        assert found is None
    system.Free()


def case_one_wrong_node_is_noticed(comm):
    """A solution is compared with that of rank 0 alone at every node of every rank."""
    system = System(comm, (4, 4, 2 + comm.size), PROBLEMS["smooth"], 0.0)
    options = Namespace(rtol=1e-10, maxiter=500)
    x = system.solution(system.matrix, options.rtol, options.maxiter).x
    expected = alone(system, options)
    good = compared(system, options, expected, x)
    assert good.passed, good
    if comm.rank == comm.size - 1:
        x[-1] += 1e-4
    bad = compared(system, options, expected, x)
    assert not bad.passed
    assert 1e-5 < bad.error < 1e-3
    system.Free()


@parameters(problem=list(PROBLEMS))
def case_order_of_convergence(comm, problem):
    words = f"--shape 16 --problem {problem} --distort 0.1 --iterations 5 --repeats 1 --comm fence"
    code, found = run(comm, words)
    assert code == 0, found["verdicts"]
    levels = found["levels"]
    assert [each["x"] for each in levels] == [4, 8, 16]
    assert levels[0]["order"] is None
    assert abs(levels[2]["order"] - 2) < 0.3
    assert "order of convergence, off 2" in found["verdicts"]


def case_scaling(comm):
    words = "--shape 4 5 6 --levels 1 --iterations 8 --repeats 2 --scaling weak strong --comm fence"
    code, found = run(comm, words)
    assert code == 0, found["verdicts"]
    counts = sorted({1 << power for power in range(8) if 1 << power <= comm.size} | {comm.size})
    whole = found["rows"][-1]["elements"]
    for scaling in ("weak", "strong"):
        rows = [row for row in found["rows"] if row["labels"]["scaling"] == scaling]
        assert [int(row["labels"]["ranks"]) for row in rows[::2]] == counts
        assert [row["labels"]["method"] for row in rows] == ["two-sided", "fence"] * len(counts)
        assert all(row["verified"] for row in rows)
        sizes = [prod(row["elements"]) for row in rows[::2]]
        expected = [120 * count for count in counts]
        assert sizes == (expected if scaling == "weak" else [120 * comm.size] * len(counts))
        assert f"overhead_{scaling}" in found
    assert prod(whole) == 120 * comm.size
    assert [each["labels"]["ranks"] for each in found["assembly"]] == [*counts, *counts]


@ranks(at_least=2)
@parameters(name=["fence", "fence-threads"])
def case_wrong_ghosts_are_noticed(comm, name):
    """One way whose ghosts are not brought is told apart from the other."""
    if name in THREADED:
        need_threads()
    put = Fence._put
    Fence._put = lambda self: None
    try:
        words = f"--shape 8 --levels 1 --iterations 5 --repeats 1 --maxiter 60 --comm {name}"
        code, found = run(comm, words)
    finally:
        Fence._put = put
    assert code == 1
    assert found["verified"] is False
    assert {row["labels"]["method"]: row["verified"] for row in found["rows"]} == {
        "two-sided": True,
        name: False,
    }


@ranks(at_least=2)
def case_a_slow_rank(comm):
    start = TwoSided.start

    def late(self, x):
        if comm.rank == 1:
            time.sleep(0.002)
        start(self, x)

    TwoSided.start = late
    try:
        code, found = run(comm, "--shape 6 --levels 1 --iterations 10 --repeats 2 --comm fence")
    finally:
        TwoSided.start = start
    assert code == 0, found["verdicts"]


def case_too_few_iterations_are_no_solution(comm):
    code, found = run(comm, "--shape 8 --levels 1 --iterations 5 --repeats 1 --maxiter 2")
    assert code == 1
    assert found["verdicts"]["residuals of the solutions"]["verified"] is False
    assert not any(row["converged"] for row in found["rows"] if "reason" not in row)


def case_a_thread_level_too_low(comm):
    """The way with threads is left out, with a reason; the others run."""
    query = MPI.Query_thread
    MPI.Query_thread = lambda: MPI.THREAD_SERIALIZED
    try:
        words = "--shape 4 --levels 1 --iterations 5 --repeats 1 --comm fence,fence-threads"
        code, found = run(comm, words)
    finally:
        MPI.Query_thread = query
    assert code == 0, found["verdicts"]
    rows = {row["labels"]["method"]: row for row in found["rows"]}
    assert "MPI_THREAD_MULTIPLE" in rows["fence-threads"]["reason"]
    assert rows["fence"]["verified"] is True


@ranks(at_least=2)
def case_an_element_that_one_rank_finds_inside_out(comm):
    with pytest.raises(CommandError, match="turns elements inside out"):
        run(comm, "--shape 6 --levels 1 --distort 0.9")
    with pytest.raises(CommandError, match="--ranks-list 99: the job has"):
        run(comm, "--shape 6 --levels 1 --scaling weak --ranks-list 99")
    with pytest.raises(CommandError, match="--ranks-list is for --scaling"):
        run(comm, "--shape 6 --levels 1 --ranks-list 1")


@ranks(at_least=9)
def case_a_mesh_too_small_for_the_ranks(comm):
    with pytest.raises(CommandError, match=r"too small for|cannot be arranged"):
        run(comm, "--shape 2 --levels 1")
