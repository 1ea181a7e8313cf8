"""Random legal programs: the generator and its proof by themselves, then every any-order method."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import replace

import legal_programs_campaign as campaign
import mpi_harness
import pytest
import servers
from legal_programs import (
    ROWS,
    Comm,
    Op,
    Program,
    Request,
    generate,
    problem,
    smaller,
)

SEEDS = range(60)
#: Programs that failed once; the campaign writes them.
KEPT = sorted(campaign.KEPT.glob("*.json"))
PLACE = functools.partial(campaign.Place, launch=servers.run)
ONE_OF_EACH = [  # the longest family once, the others again and again
    "+".join(f"{family}:{names[i % len(names)]}" for family, names in campaign.FAMILIES.items())
    for i in range(max(map(len, campaign.FAMILIES.values())))
]
SEVERAL = pytest.mark.parametrize("ranks", [2, 3, 4])
VERBS = {"abandon", "alloc", "allreduce", "barrier", "dealloc", "free", "give", "ibarrier",
         "ibarrier_wait", "init", "posted", "posted_wait", "ready", "recv", "send", "sendrecv",
         "sleep", "start", "take", "wait"}


# -- the generator and the proof, without MPI -----------------------------------------------------


def ops(program):
    return [op for rank in program.ranks for op in rank]


def test_programs_are_legal_full_and_varied():
    rows, verbs, memory, hows, sizes = (Counter() for _ in range(5))
    joined = differ = 0
    for seed in SEEDS:
        ranks = 2 + seed % 3
        program = generate(seed, ranks)
        assert problem(program) is None
        assert len(ops(program)) >= 20, program
        assert len({request.row for request in program.requests}) >= 3
        rows.update(request.row for request in program.requests)
        memory.update((request.row, request.memory) for request in program.requests)
        sizes.update(request.size for request in program.requests)
        verbs.update(op.verb for op in ops(program))
        hows.update((op.verb, op.how) for op in ops(program))
        joined += sum(len(op.requests) > 1 for op in ops(program))
        differ += program.ranks != generate(seed, ranks, moves=0).ranks
    assert set(rows) == set(ROWS)
    assert set(verbs) == VERBS
    assert {("Alltoallv", "none"), ("Alltoallv", "slot"), ("boxes", "window"), ("Bcast", "window"),
            ("partitioned", "plain"), ("partitioned", "window")} <= set(memory)  # fmt: skip
    assert len(sizes) > 3
    assert ("wait", "test") in hows
    assert joined > 30
    assert differ > 56, "moves are what makes the programs interesting"


def test_a_seed_gives_one_program_and_json_keeps_it():
    program = generate(5, 3)
    assert generate(5, 3) == program != generate(6, 3)
    assert Program.from_json(json.loads(json.dumps(program.to_json()))) == program
    assert "seed 5" in str(program)


def program_of(*ranks, row="Alltoallv"):
    """Two communicators of two ranks, two requests; every rank initializes first, frees last."""
    comms = (Comm((0, 1)), Comm((0, 1), 0))
    target = 1 if row == "partitioned" else -1
    requests = tuple(Request(row, i, "plain", 1, 3, 0, target, (2, 1)) for i in range(2))
    begin = [Op("init", -1, i, (i,)) for i in range(2)]
    end = [Op("free", -1, i, (i,)) for i in range(2)]
    return Program(0, comms, requests, tuple((*begin, *rank, *end) for rank in ranks))


def start(*numbers):
    return Op("start", requests=numbers)


def wait(*numbers):
    return Op("wait", requests=numbers)


BREAK = Op("abandon", requests=(0,))
BARRIER = Op("barrier", 1, 0)
SEND, RECV = Op("send", 2, 0, peer=1), Op("recv", 2, 0, peer=0)
MARK = Op("ready", requests=(0,), parts=(0,))
REST = MARK._replace(parts=(1,))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([start(0), BARRIER, wait(0)], [start(0), wait(0), BARRIER]),
        ([start(0), start(1), wait(1), wait(0)], [start(1), start(0), wait(0), wait(1)]),
        ([start(0, 1), wait(1, 0)], [start(1), start(0), wait(0), wait(1)]),
        ([start(0), SEND, wait(0)], [RECV, start(0), wait(0)]),
        ([start(0), wait(0), BREAK], [start(0), wait(0)]),
        ([SEND, BARRIER], [Op("posted", 2, 0, peer=0), BARRIER, Op("posted_wait", 2, 0, peer=0)]),
    ],
)
def test_legal_programs_are_accepted(first, second):
    assert problem(program_of(first, second)) is None


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ([start(0), wait(0), BARRIER], [BARRIER, start(0), wait(0)], "deadlock"),
        ([start(0), wait(0), start(1), wait(1)], [start(1), wait(1), start(0), wait(0)],
         "deadlock"),
        ([SEND, BARRIER], [BARRIER, RECV], "deadlock"),
        ([start(0), wait(0), SEND], [RECV, start(0), wait(0)], "deadlock"),
        ([BARRIER, Op("barrier", 3, 0)], [Op("barrier", 3, 0), BARRIER], "different orders"),
        ([start(0), start(0), wait(0)], [start(0), wait(0)], "active, not inactive"),
        ([wait(0)], [], "inactive, not active"),
        ([start(0)], [start(0), wait(0)], "active, not inactive: free"),
        ([BREAK, start(0), wait(0)], [start(0), wait(0), BREAK], "broken, not inactive"),
        ([start(0), BREAK, wait(0)], [start(0), wait(0), BREAK], "active, not inactive: abandon"),
        ([SEND], [Op("posted", 2, 0, peer=0)], "left over"),
        ([], [Op("posted_wait", 2, 0, peer=0)], "has not begun"),
    ],
)
def test_illegal_programs_are_rejected(first, second, why):
    assert why in problem(program_of(first, second))


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ([start(0), wait(0)], [start(0), wait(0)], None),
        ([start(0), start(1), wait(1), wait(0)], [start(0), start(1), wait(0), wait(1)], None),
        ([start(0), start(1), wait(1), wait(0)], [start(1), start(0), wait(0), wait(1)],
         "in different orders"),
        ([start(0), BARRIER, wait(0)], [BARRIER, start(0), wait(0)], "deadlock"),
        ([start(0), BARRIER, wait(0)], [start(0), wait(0), BARRIER], "deadlock"),
        ([start(0, 1), wait(0), wait(1)], [start(0), start(1), wait(0), wait(1)], "among others"),
    ],
)
def test_strictly_ordered_requests_block_and_keep_their_order(first, second, why):
    program = program_of(first, second)
    requests = tuple(replace(request, strict=True, comm=0) for request in program.requests)
    ranks = tuple(tuple(op._replace(comm=0) if op.verb in ("init", "free") else op for op in ops)
                  for ops in program.ranks)
    said = problem(replace(program, requests=requests, ranks=ranks))
    assert said is None if why is None else why in said


def test_partitioned_sends_wait_for_marks_and_for_the_receiver():
    both = [start(1), Op("ready", requests=(1,), parts=(0, 1))]
    receiver = [start(0), start(1), wait(0), wait(1)]
    sender = [start(0), MARK, REST, *both, wait(0), wait(1)]
    assert problem(program_of(sender, receiver, row="partitioned")) is None
    unmarked = [start(0), MARK, *both, wait(0), REST, wait(1)]
    assert "deadlock" in problem(program_of(unmarked, receiver, row="partitioned"))
    twice = [start(0), MARK, MARK, *both, wait(0), wait(1)]
    assert "no such mark" in problem(program_of(twice, receiver, row="partitioned"))
    late = [start(1), wait(1), BARRIER, start(0), wait(0)]
    assert "deadlock" in problem(
        program_of([start(0), MARK, REST, *both, wait(0), BARRIER, wait(1)], late,
                   row="partitioned"))


def test_memory_is_given_back_after_the_request():
    good = program_of([], [], row="partitioned")
    requests = tuple(replace(request, memory="window") for request in good.requests)
    alloc = [Op("alloc", -1, i, (i,)) for i in range(2)]
    dealloc = [Op("dealloc", -1, i, (i,)) for i in range(2)]
    ranks = tuple((*alloc, *rank, *dealloc) for rank in good.ranks)
    assert problem(Program(0, good.comms, requests, ranks)) is None
    assert "no memory" in problem(Program(0, good.comms, requests, good.ranks))
    early = tuple((*alloc, *rank[:2], *dealloc, *rank[2:]) for rank in good.ranks)
    assert "not at the end" in problem(Program(0, good.comms, requests, early))
    assert "left over" in problem(
        Program(0, good.comms, requests, tuple((*alloc, *rank) for rank in good.ranks)))


@SEVERAL
def test_smaller_programs_are_legal_and_smaller(ranks):
    program = generate(3, ranks)
    steps = list(smaller(program))
    assert len(steps) > 5
    assert len({name for name, _ in steps}) == len(steps)
    for (step, *_), candidate in steps:
        assert problem(candidate) is None
        fewer = len(ops(candidate)) < len(ops(program))
        assert fewer or candidate.requests != program.requests or step == "split"
    assert ranks == 2 or any(len(candidate.ranks) < ranks for _, candidate in steps)


def test_shrinking_keeps_what_fails():
    program = generate(8, 3)

    def attempt(candidate):
        return "wrong" if any(op.verb == "sendrecv" for op in ops(candidate)) else None

    small = campaign.shrink(program, attempt, 1000)
    assert attempt(program) == attempt(small) == "wrong"
    assert {op.verb for op in ops(small)} == {"sendrecv"}
    assert len(ops(small)) == 2
    assert campaign.shrink(program, lambda candidate: None, 10) == program


def test_what_failed_is_kept_with_how_it_was_run(tmp_path):
    kept = campaign.Kept(generate(8, 3), "exchange:p2p+broadcast:auto", "emulated")
    path = kept.write(tmp_path)
    assert path.name == "8-3-p2p-auto-emulated.json"
    assert campaign.Kept.read(path) == kept


def test_every_any_order_method_is_tried():
    from onesided.collectives import methods, partitioned_methods

    def any_order(known):
        return {name for name, method in known.items() if getattr(method, "any_order", True)}

    for family in ("exchange", "broadcast", "reduction"):
        assert set(campaign.FAMILIES[family]) == any_order(methods(family)) - {"auto"}
    known = set(partitioned_methods()) - {"auto", "mpi"}  # mpi is not ours to mend
    assert set(campaign.FAMILIES["partitioned"]) == known


# -- under MPI ------------------------------------------------------------------------------------


@pytest.fixture
def need_nodes(request, mpi_name):
    """Skips where such nodes cannot be had."""

    def need(nodes):
        if nodes == "virtual":
            request.getfixturevalue("virtual_nodes")
        if nodes == "cliques" and mpi_name != "mpich":
            pytest.skip("only MPICH has cliques")

    return need


def half_of(first, count):
    """Seeds from the first one on: with another MPI the other half of them."""
    start = first + (count // 2) * (mpi_harness.mpi_name() == "openmpi")
    return range(start, start + count // 2)


def all_pass(methods, ranks, seeds, nodes="one", most=1):
    tally = campaign.run_seeds(methods, ranks, seeds.start, seeds.stop, PLACE(nodes), most)
    if tally.failures:
        seed = tally.failures[0].seed
        again = (f"replay, and keep: tests/legal_programs_campaign.py --methods {methods} "
                 f"--ranks {ranks} --nodes {nodes} --seeds {seed}:{seed + 1}")
        pytest.fail("\n\n".join([again, *map(str, tally.failures)]), pytrace=False)
    assert tally.passed == len(seeds)


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_programs_that_failed_once(file, need_nodes):
    kept = campaign.Kept.read(file)
    need_nodes(kept.nodes)
    assert campaign.fails(kept.program, kept.methods, PLACE(kept.nodes)) is None


@pytest.mark.some(1)
@SEVERAL
def test_the_programs_are_right_by_plain_mpi(ranks):
    """What the generator writes works where no request is the library's."""
    all_pass("reference", ranks, range(10))


@pytest.mark.some(4)
@pytest.mark.parametrize("methods", ONE_OF_EACH)
def test_programs_with_one_method_of_each_family(methods):
    all_pass(methods, 3, half_of(100, 10))


@SEVERAL
def test_programs_with_all_methods_mixed(ranks):
    all_pass("mixed", ranks, half_of(200, 40))


@pytest.mark.parametrize(("methods", "nodes"), [
    ("mixed", "emulated"), ("mixed", "emulated2"), ("exchange:rma-node", "emulated2")])
def test_programs_on_emulated_nodes(methods, nodes):
    all_pass(methods, 4, half_of(300, 20), nodes)


@pytest.mark.full
@SEVERAL
@pytest.mark.parametrize("methods", [
    "reference", "mixed", *campaign.ALL, *(f"{family}:auto" for family in campaign.FAMILIES)])
def test_many_programs(methods, ranks):
    all_pass(methods, ranks, range(1000, 1400), most=5)


@pytest.mark.full
@pytest.mark.parametrize("nodes", ["emulated", "emulated2", "virtual", "cliques"])
@pytest.mark.parametrize("methods", [*campaign.ALL, "mixed"])
def test_many_programs_on_nodes(need_nodes, methods, nodes):
    need_nodes(nodes)
    all_pass(methods, 4, range(2000, 2100), nodes, most=5)
