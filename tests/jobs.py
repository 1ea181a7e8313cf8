"""On which MPI jobs the cases of each module of tests/mpi run.

A short run takes the jobs that are not ``full``: of those that are ``alike`` each case runs on one,
chosen once and for all from its name, on the others all do; of a ``thin`` job's cases so many that
each value of each parameter occurs. ``--full`` runs every case on every job.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import mpi_harness


@dataclass(frozen=True)
class Job:
    """Ranks, on emulated or virtual nodes, in an environment; and the cases that are meant."""

    ranks: int
    name: str = ""
    nodes: int = 1
    env: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    select: tuple[str, ...] = ()
    full: bool = False
    alike: bool = False
    thin: bool = False
    mpi: str = ""
    needs: str = ""
    limit: float = 600.0  # seconds in which a batch of cases must have moved on

    def __str__(self) -> str:
        return f"{self.ranks}-{self.name}" if self.name else str(self.ranks)

    @property
    def place(self) -> tuple[object, ...]:
        """Jobs that differ in nothing that counts when they start stand together."""
        import servers

        at_start = [pair for pair in self.env if pair[0].startswith(servers.AT_START)]
        return self.nodes, at_start, self.ranks, self.env, self.options, self.name, self.select

    @property
    def size(self) -> int:
        """As a communicator has it."""
        return self.ranks

    @property
    def says_the_same(self) -> bool:
        """With every MPI: which interpreter runs rounds is the library's affair."""
        return ("ONESIDED_CORE", "python") in self.env

    def takes(self, name: str) -> bool:
        return not self.select or any(text in name for text in self.select)

    def is_here(self, full: bool) -> bool:
        """Whether a run of this MPI collects it."""
        if self.mpi and self.mpi != mpi_harness.mpi_name():
            return False
        if full:
            return True
        if self.needs and not self.full:
            return (self.needs == "cliques") == bool(no_virtual_nodes())
        return not self.full

    def missing(self) -> str:
        """Why it cannot start here."""
        return no_virtual_nodes() if self.needs == "virtual" else ""


@functools.cache
def no_virtual_nodes() -> str:
    import cluster

    reason = cluster.available()
    return f"no virtual nodes: {reason}" if reason else ""


def on(
    *ranks: int,
    name: str = "",
    env: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    select: str | Iterable[str] = (),
    **more: bool | str | float,
) -> list[Job]:
    """A job for each number of ranks."""
    chosen = (select,) if isinstance(select, str) else tuple(select)
    pairs = tuple((env or {}).items())
    return [Job(number, name, env=pairs, options=tuple((options or {}).items()), select=chosen,
                **more) for number in ranks]  # type: ignore[arg-type]  # fmt: skip


def full(*ranks: int, name: str = "full", **more: object) -> list[Job]:
    """Jobs of a full run only."""
    return on(*ranks, name=name, full=True, **more)  # type: ignore[arg-type]


CLIQUES = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}


def two_nodes(
    select: str | Iterable[str] = (), env: Mapping[str, str] | None = None, **more: object
) -> list[Job]:
    """Two nodes of two ranks: virtual ones, or cliques where those cannot be made; in full both."""
    cliques = CLIQUES | dict(env or {})
    return [
        *on(4, name="two-nodes", nodes=2, env=env, select=select, needs="virtual", **more),  # type: ignore[arg-type]
        *on(4, name="cliques", env=cliques, select=select, needs="cliques", mpi="mpich", **more),  # type: ignore[arg-type]
    ]


def without_single_copy(*ranks: int, **more: object) -> list[Job]:
    """Large messages need both sides' progress where one side cannot copy them alone."""
    settings = {"mpich": {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}, "openmpi": {"OMPI_MCA_smsc": "^cma"}}
    return list(chain.from_iterable(
        on(*ranks, name="no-single-copy", env=env, mpi=mpi, **more)  # type: ignore[arg-type]
        for mpi, env in settings.items()))  # fmt: skip


def at_level(*levels: str, ranks: int = 2, **more: object) -> list[Job]:
    """Below MPI_THREAD_MULTIPLE."""
    return list(chain.from_iterable(
        on(ranks, name=level, env={"MPI4PY_RC_THREAD_LEVEL": level}, **more)  # type: ignore[arg-type]
        for level in levels))  # fmt: skip


def emulated(ranks: int, *nodes: str, **more: object) -> list[Job]:
    """Emulated nodes of so many ranks: the ways between nodes without any network."""
    return list(chain.from_iterable(
        on(ranks, name=f"nodes-of-{number}", options={"ranks_per_node": number}, **more)  # type: ignore[arg-type]
        for number in nodes))  # fmt: skip


PYTHON = {"ONESIDED_CORE": "python"}
DEBUG = {"ONESIDED_DEBUG": "1"}
ALONE = {"MPI_JOB": "alone"}  # in no job with others: what it registers stays
QUICK = {"ONESIDED_CASE_TIMEOUT": "30"}
SLOW = {"ONESIDED_CASE_TIMEOUT": "500"}
ALL_FFT = {"ONESIDED_FFT_CASES": "all"}
MORE = {"examples": "100"}

# -- the harness and the virtual nodes -------------------------------------------------------------

HARNESS = {
    "harness_items": [*on(2, 3, options={"colour": "red=ish"})],
    "cases_nodes": [
        *two_nodes("groups"),
        Job(4, "private", 2, select=("private",), needs="virtual"),
    ],
}

# -- collectives ----------------------------------------------------------------------------------

REDUCTIONS_ON_NODES = ["case_the_same_bits", "case_nobody_passes"]
DIRECT = [f"method={name}" for name in ("rma-notify", "rma-p2p", "rma-fence,", "rma-fence]", "p2p")]
DEEP = ["changing_roots"]
WITHOUT = ["kind=create", "kind=allocate", "roots", "windows", "linear"]

# without what breaks rounds: off the node that leaves windows, of which MPICH complains at the end
WHOLE = ["case_free", "mistaken", "case_one_rank_has"]

TABLE = [
    *on(1, thin=True), *on(2, 3, alike=True, thin=True),
    *on(2, name="python", env=PYTHON, thin=True), *full(2, name="debug", env=DEBUG),
    *without_single_copy(3, full=True), *full(2, 3, 4), *two_nodes(full=True),
]

COLLECTIVES = {
    "cases_table": [
        *TABLE, *emulated(4, "2", thin=True), *emulated(3, "1", full=True),
        *emulated(4, "3", select="rma-node", thin=True),
        *emulated(4, "1", select="many_segments", thin=True),
        *at_level("single", "serialized", select="case_data", thin=True),
        *at_level("funneled", select=["case_data", "case_polls"], thin=True),
    ],
    "cases_table_order": [
        *TABLE, *emulated(4, "2", thin=True), *emulated(3, "1", full=True),
        *emulated(2, "1", select="strictly_ordered"),
        *full(64, 128, name="many", select="looking_wait_for_nobody"),
        *on(2, name="watched", env=DEBUG, select=["strictly_ordered", "late_and_slow"], thin=True),
        *at_level("funneled", select=["case_late_and_slow"], thin=True),
    ],
    "cases_table_failures": [
        *TABLE, *emulated(4, "2", select=WHOLE, thin=True),
        *emulated(3, "1", select=WHOLE, full=True),
    ],
    "cases_table_debug": [*on(2, 3, env=DEBUG, thin=True), *full(2, 4, env=DEBUG)],
    "cases_buffers": [*on(1, 3, thin=True), *full(2, 4)],
    "cases_validation": [*on(1, 3, thin=True), *full(4), *two_nodes(full=True)],
    "cases_random": [*on(1, 3, thin=True), *full(4, options=MORE, env=SLOW)],
    "cases_memory": [
        *on(1, 2, thin=True), *full(4), *two_nodes(full=True),
        *full(2, name="many", options={"cycles": "2000"}, select="many_cycles", env=SLOW),
    ],
    "cases_nodes_exchange": [
        *emulated(4, "1", "2", thin=True), *two_nodes(thin=True),
        *at_level("funneled", select="refused", thin=True),
        *full(4, name="ofi", env={"MPIR_CVAR_CH4_NETMOD": "ofi"}, mpi="mpich"),
        *full(4, name="no-local", env={"MPIR_CVAR_NOLOCAL": "1"}, mpi="mpich"),
        *full(4, name="tcp", env={"UCX_TLS": "tcp,self"}, mpi="mpich"),
        *full(4, name="odd-even", env={"MPIR_CVAR_ODD_EVEN_CLIQUES": "1"}, mpi="mpich"),
    ],
    "cases_large": full(2, env=SLOW),
    "cases_filled": [
        *on(1, 3, thin=True), *full(2, 4), *emulated(3, "1", select=DIRECT, thin=True),
        *emulated(3, "2", select="method=rma-node", thin=True),
        *on(2, name="debug", env=DEBUG, select=["alternate", "misuse"], thin=True),
        *two_nodes(full=True),
    ],
    "cases_reduction": [
        *on(2, 3, thin=True), *full(1, 4, 5),
        *emulated(3, "1", select=REDUCTIONS_ON_NODES, thin=True),
        *emulated(5, "2", select=REDUCTIONS_ON_NODES, thin=True),
        *on(3, name="python", env=PYTHON, thin=True),
        *two_nodes(REDUCTIONS_ON_NODES, thin=True),
    ],
    "cases_broadcast": [
        *on(1, 3, thin=True), *full(1, 2, 3, 4, 7, env=SLOW),
        *emulated(4, "1", "2", select="roots_in_turn", thin=True),
        *two_nodes(full=True),
    ],
    "cases_passive": [
        *on(1, 3, thin=True), *full(2, 4), *on(4, name="deep", select=DEEP, thin=True),
        *at_level("funneled", select="linear"), *full(7, select=DEEP), *two_nodes(full=True),
        *full(2, 3, 4, 7, name="thousand", select="changing_roots", options={"count": "1000"},
              env=SLOW),
        *full(2, name="many", select="again_and_again", options={"cycles": "100"}, env=SLOW),
        *full(3, name="ofi", env={"MPIR_CVAR_CH4_NETMOD": "ofi"}, mpi="mpich"),
        *full(3, name="no-local", env={"MPIR_CVAR_NOLOCAL": "1"}, mpi="mpich"),
        *full(3, name="tcp", select=WITHOUT, mpi="openmpi",
              env={"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_osc": "^ucx,sm"}),
    ],
    "cases_passive_errors": [*on(3), *full(1, 2, 4), *two_nodes(full=True)],
    "cases_partitioned": [
        *on(2, 3, thin=True), *full(1, 4, 7),
        *on(2, name="python", env=PYTHON, thin=True), *full(2, name="debug", env=DEBUG),
        *two_nodes(["method=auto", "row=auto", "row=p2p"], thin=True),
        *without_single_copy(2, select="case_rounds", full=True),
        *at_level("funneled", select="case_rounds", thin=True),
        *at_level("serialized", select="case_rounds", full=True),
    ],
    "cases_partitioned_limits": [
        *on(2, 3, alike=True, thin=True), *on(2, name="python", env=PYTHON, thin=True),
        *two_nodes(["method=auto", "disagree"], thin=True),
        *on(2, name="debug", env=DEBUG, thin=True),
    ],
    "cases_broken": [
        *on(2, env=QUICK, thin=True), *on(3, env=QUICK, thin=True),
        *on(2, name="python", env=QUICK | {"ONESIDED_CORE": "python"}, thin=True),
    ],
    "cases_profiling": [*on(1, 2, 3, alike=True, thin=True),
                        *on(2, name="python", env={"ONESIDED_CORE": "python"}, thin=True)],
    "cases_protocols": [*on(2, 3, alike=True), *on(4, select="pairs_of_nodes")],
    "cases_halo": [
        *on(1, select=["case_random_grids", "way=store"], thin=True), *on(2, 3, 4, thin=True),
        *two_nodes(["case_random_grids"], thin=True), *full(1, 2, 3, 4, 6, 8),
        *at_level("funneled", "serialized", full=True),
    ],
    "cases_halo_errors": [
        *on(2, thin=True), *full(1, 3, 4, 6, 8),
        *full(2, name="many", select="many_cycles", options={"cycles": "2500"}, env=SLOW),
    ],
    "cases_grid": [
        *on(2, thin=True),
        *on(3, select=["case_update", "case_accumulate_is", "case_migrate", "burst"],
            thin=True),
        *on(4, select=["case_update[form=((9", "case_accumulate_is"], thin=True),
        *full(1, 2, 3, 4, 6, 8), *two_nodes(full=True),
    ],
    "cases_many": [*on(4), *full(64, 128)],
    "cases_tuning": [
        *on(1, 2), *on(4, select="that_overlap_are_tried"), *full(3), *two_nodes(full=True),
    ],
    "cases_transport": on(1, 3, env=ALONE),
}  # fmt: skip

# -- pencilfft ------------------------------------------------------------------------------------

FFT = [*on(1), *on(2, 3, 4, alike=True, thin=True), *full(2, 3, 4, 6, 7, env=ALL_FFT)]
CALLS = [*on(1, thin=True), *FFT[1:]]  # one rank has no exchange that could go wrong
PENCILFFT = {
    "cases_fft": [
        *FFT, *on(6, select=("case_delayed_ranks", "case_one_of_two"), thin=True)
    ],
    "cases_fft_errors": CALLS,
    "cases_fft_kinds": FFT,
    "cases_fft_random": FFT,
    "cases_fft_wisdom": FFT,
    "cases_fft_dropin": [*on(1, 2), *full(4)],
    "cases_fft_line": [*FFT, *on(7, select="case_lines[char=D", thin=True)],
    "cases_fluidfft": on(1, 2, 3),
    "cases_fft_nonblocking": CALLS,
    "cases_io": [*on(3, thin=True), *full(1, 2, 4, 6),
                 Job(4, "disk", 2, (("ONESIDED_IO_DISK", "1"),), full=True, needs="virtual")],
    "cases_io_errors": [*on(2, thin=True), *full(1, 4, 6)],
}  # fmt: skip

# -- sparse ---------------------------------------------------------------------------------------

READING = ["shipped", "blocks", "array_files", "newline", "bad_file", "fault", "opened",
           "routed", "those_only"]  # fmt: skip
SOLUTIONS = [
    "lsqr[name=wide", "power_iteration[name=Trefethen_20b", "iterates", "those_of_scipy[restart=5",
    "formulas[kind=BlockILU", "chebyshev", "pagerank", "number_of_ranks", "other_rows",
    "distributed_vectors[solver=cg", "named", "eigenpairs", "multigrid",
]  # fmt: skip
RUNS = ["nothing", "limit", "callback", "callers_function", "breakdown", "bad", "reductions",
        "preconditioner_of", "null", "single", "unlike"]
SEEN = ["number", "converged_means", "least", "table[", "not_normal"]
ORDERINGS = [*on(1), *on(3, 4, alike=True), *full(2, 7)]
SPARSE = {
    "cases_sparse_table": [*on(1, 2, 3, thin=True), *full(1, 2, 3, 4, 5)],
    "cases_sparse_reading": [
        *on(1, select=READING), *on(2, 3, 4, 5, alike=True, select=READING),
        *full(1, 2, 3, 4, 5, 7, select="case_large", env=SLOW),
    ],
    "cases_matrix": [
        *on(1), *on(2, 3, 4, alike=True, thin=True), *full(7),
        *emulated(4, "2", select="halo_brings"), *emulated(5, "4", select="halo_brings"),
        *on(5, thin=True, select=["name=square", "name=few rows", "bad_input", "halo"]),
        *full(1, 2, 3, 4, select="case_random", options={"examples": "40"}, env=SLOW),
    ],
    "cases_kernels": [*on(2, 3, alike=True), *full(1, 4, 7)],
    "cases_solvers": [*on(2, select=SOLUTIONS), *full(1, 2, 3, 4),
                      *on(3, select=["number_of_ranks", "formulas[kind=SSOR"])],
    "cases_solver_runs": [*on(2, select=[*RUNS, "jacobi=True"]), *full(1, 2, 3, 4)],
    "cases_numerics": [*on(2, select=SEEN, thin=True), *full(1, 2, 3, 4, env=SLOW)],
    "cases_ordering": ORDERINGS,
    "cases_formats": [*on(2), *full(1, 3, 4, 7)],
    "cases_fuzz": [
        *on(2, select=["coordinate, plain", "boeing, packed", "npz packed, plain", "blocks",
                       "in gzip", "any"]),
        *full(1, 2, 3, 4, 7, options={"examples": "150"}, env=SLOW),
    ],
    "cases_petsc": on(2),
}  # fmt: skip

# -- apps -----------------------------------------------------------------------------------------

APPS = {
    "cases_apps": [*on(1, 2), *on(3, select="methods_of_the_papers", thin=True), *full(4),
                   *two_nodes("layout", options={"nodes": "2"})],
    "cases_mini": [*on(3, thin=True), *full(1, 2, 4), *two_nodes("neighbors", full=True)],
    "cases_minimd": [*on(2, thin=True), *full(1, 3, 4, 8), *two_nodes("every_way", full=True)],
    "cases_flow": [*on(1, 2), *on(4, select=["case_rate", "case_a_restart"]), *full(3, 4, 6)],
    "cases_poisson": [*on(1, 2), *on(4, select="case_walls[which=walls"), *full(4)],
}  # fmt: skip

JOBS = HARNESS | COLLECTIVES | PENCILFFT | SPARSE | APPS
