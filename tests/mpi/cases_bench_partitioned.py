"""The parts of the benchmark of partitioned sends: checks, slow contestants, wrong data."""

from __future__ import annotations

import contextlib
import io
import time
from itertools import count
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.race import WARM_UP, Race
from onesided.apps.bench.store import Parts
from onesided.apps.bench.team import Team
from onesided.apps.cli.options import Parser
from onesided.apps.cli.report import Report
from onesided.apps.papers import partitioned, partitioned_sends, partitioned_sweep
from onesided.apps.papers.options import bench_partitioned
from onesided.apps.papers.partitioned_sends import (
    ONE_BY_ONE,
    ORDERS,
    WHOLE,
    Contestant,
    Entry,
    Lane,
    Runner,
    blocking,
    single,
)
from onesided.apps.papers.partitioned_sweep import (
    READY,
    TURNS,
    Check,
    Measurement,
    Place,
    Result,
    Round,
)
from onesided.collectives import ResourceError, UnsupportedError

PART, COUNT = 24, 6
LONG = 1 << 20  # bytes of a partition that MPI does not keep for the receiver


def options(*words):
    parser = Parser()
    bench_partitioned(parser)
    return parser.parse_args(["--iterations", "3", "--buffer", str(PART * COUNT), *words])


def lane_of(comm, part=PART):
    return Lane(comm, np.zeros(part * COUNT, np.uint8), COUNT)


def wrong(comm, make, part=PART):
    """What the check finds with a contestant that marks one by one, from left to right."""
    lane = lane_of(comm, part)
    runner = make(lane)
    with Team(1) as team:
        (share,) = ORDERS["left-to-right"].shares(COUNT, 1, 0)
        works = [ONE_BY_ONE.work(runner, share, None)]
        found = Check(lane).wrong(Round(runner, team, works), 60.0)
    runner.free()
    assert runner.pace > 0
    return found


def faulty(change):
    """Blocking messages, of which the receiver spoils something after each round."""

    def make(lane):
        runner = blocking(lane)
        last = np.zeros(lane.message.size, np.uint8)

        def wait():
            if not lane.is_sender:
                change(lane.message.reshape(COUNT, PART), last.reshape(COUNT, PART))
                last[:] = lane.message

        runner.wait = wait
        return runner

    return make


def case_right_data_are_right(comm):
    assert wrong(comm, blocking) == 0


def case_one_wrong_byte_is_seen(comm):
    def spoil(parts, last):
        parts[4, -1] ^= 1

    assert wrong(comm, faulty(spoil)) == 1


def case_swapped_partitions_are_seen(comm):
    def swap(parts, last):
        parts[[1, 3]] = parts[[3, 1]]

    assert wrong(comm, faulty(swap)) == 2


def case_data_of_the_round_before_are_seen(comm):
    def repeat(parts, last):
        if last.any():
            parts[2] = last[2]

    assert wrong(comm, faulty(repeat)) == 1


def case_a_sender_that_comes_back_too_early_is_seen(comm):
    """Of a long message most leaves when the receiver takes it, too late here."""

    def make(lane):
        if not lane.is_sender:
            runner = blocking(lane)
            runner.start = lambda: time.sleep(0.03)
            return runner
        pieces, requests = lane.pieces(), []

        def mark(index):
            requests.append(lane.comm.Isend([pieces[index], MPI.BYTE], lane.peer, index))

        return Runner(mark=mark, free=lambda: MPI.Request.Waitall(requests))

    assert wrong(comm, make, LONG) == COUNT


PLACES = [Place(PART, "left-to-right", 1), Place(PART, "randomized", 2)]


def swept(comm, field, *words, share=20.0, places=PLACES):
    """The rows, by order: of those that could not be made at all by None."""
    report, found = Report("bench partitioned", {}, {}), {}
    sweep = Measurement(options(*words), field, share)
    sweep.run(comm, places, lambda: None, Parts(comm, report, None))
    for row in report.rows:
        found.setdefault(row.labels.get("order"), []).append(row)
    return found


def slow(pause, foreign=False):
    def make(lane):
        runner = blocking(lane)
        runner.wait = lambda: time.sleep(pause)
        return runner

    return Contestant("slow", make, [ONE_BY_ONE], foreign=foreign)


def case_everybody_is_timed_in_the_same_rounds(comm):
    field = partitioned_sends.contestants("send,persistent,isend,auto", [0, 64])
    found = swept(comm, field)
    assert list(found) == [place.order for place in PLACES]
    for order, rows in found.items():
        markings = 2 if order == "left-to-right" else 1
        assert len(rows) == 1 + 3 + 2 * markings
        for row in rows:
            assert not row.reason
            assert row.verdict.error == row.facts["wrong_partitions"] == 0
            assert len(row.times) == len(row.details["after last"]) == 3
            if comm.rank == 0:
                assert all(0 < tail <= time for tail, time in zip(
                    row.details["after last"], row.times, strict=True))
    times = {order: [each.times for each in rows] for order, rows in found.items()}
    assert comm.bcast(times) == times


def case_a_slow_contestant_has_fewer_rounds(comm):
    """All in four rounds, for more there is no time; the other five without the slow one."""
    asked = []

    def race(comm, contestants, *, iterations, seconds):
        names = [each.name for each in contestants]
        asked.append((names, iterations))
        rounds = min(iterations, 4 if len(names) == 3 else 9)
        parts = {name: {READY: rounds * [0.5]} for name in names}
        return Race({name: rounds * [1.0] for name in names}, mine=parts)

    paces = {"single": 1e-4, "slow": 0.2, "isend": 5e-4}
    results = [
        Result(Entry(Contestant(name, single, []), WHOLE), pace=pace)
        for name, pace in paces.items()
    ]
    rounds = [SimpleNamespace(ready=0.0) for _ in results]
    original, partitioned_sweep.race = partitioned_sweep.race, race
    try:
        found = Measurement(options("--iterations", "9"), [], 1e3)
        found._time(lane_of(comm), results, rounds, time.perf_counter())
    finally:
        partitioned_sweep.race = original
    names = [f"{name} -" for name in paces]
    assert asked == [(names, 9), ([names[0], names[2]], 5)]
    assert [len(each.times) for each in results] == [9, 4, 9]
    assert all(each.tails == len(each.times) * [0.5] for each in results)


def case_a_contestant_that_is_too_slow_has_a_reason(comm):
    found = swept(comm, [partitioned_sends.SINGLE, slow(0.15)], share=1.6)
    assert len(found) == len(PLACES)
    for fast, late in found.values():
        assert fast.times
        assert not late.times
        assert "--seconds" in late.reason
        assert late.facts["round_s"] >= 0.15


def case_what_cannot_be_made_has_a_reason(comm):
    def refuse(lane):
        raise UnsupportedError("not on a Sunday")

    def refuse_alone(lane):
        if lane.is_sender:
            raise ResourceError("no tags")
        return blocking(lane)

    field = [partitioned_sends.SINGLE, *(
        Contestant(make.__name__, make, [ONE_BY_ONE]) for make in (refuse, refuse_alone))]
    found = swept(comm, field)
    assert [(row.labels["method"], row.reason) for row in found.pop(None)] == [
        ("refuse", "not on a Sunday"), ("refuse_alone", "rank 0: no tags")]
    assert [len(rows) for rows in found.values()] == [1, 1]


def command(comm, monkeyed, *words):
    """The exit code of the command with other contestants, and what rank 0 printed."""
    original = partitioned.contestants
    partitioned.contestants = lambda text, aggregates, python: [partitioned_sends.SINGLE, monkeyed]
    out = io.StringIO()
    given = options("--sizes", str(PART), "--threads", "1", *words)
    vars(given).update(ranks=None)
    try:
        with contextlib.redirect_stdout(out):
            code = partitioned.run(comm, given)
    finally:
        partitioned.contestants = original
    return code, out.getvalue()


def case_wrong_data_are_told_and_fail(comm):
    def spoil(parts, last):
        parts[0] = 0

    make = faulty(spoil)
    for foreign, expected in ((False, 1), (True, 0)):
        entered = Contestant("spoilt", make, [ONE_BY_ONE], foreign=foreign)
        code, text = command(comm, entered, "--orders", "left-to-right")
        assert code == expected
        assert ("WRONG" in text) == (comm.rank == 0)


def case_a_whole_buffer_leaves_when_all_threads_are_done(comm):
    lane = lane_of(comm)
    runner = single(lane)
    done = []
    with Team(2) as team:
        shares = ORDERS["left-to-right"].shares(COUNT, 2, 0)
        compute = (lambda: done.append(1)) if lane.is_sender else None
        works = [WHOLE.work(runner, share, compute) for share in shares]
        round_ = Round(runner, team, [work for work in works if work is not None])
        assert Check(lane).wrong(round_, 60.0) == 0
    assert len(done) == (COUNT * TURNS if lane.is_sender else 0)


def case_nobody_is_timed_twice_where_all_are_fast(comm):
    calls = []

    def make(lane):
        runner = blocking(lane)
        runner.start = lambda: calls.append(1)
        return runner

    lead, partitioned_sweep.LEAD = partitioned_sweep.LEAD, 0.0
    try:
        swept(comm, [partitioned_sends.SINGLE, Contestant("counted", make, [ONE_BY_ONE])])
    finally:
        partitioned_sweep.LEAD = lead
    assert len(calls) == partitioned_sweep.TRIALS + 2 * (TURNS + WARM_UP + 3)


def case_what_comes_after_the_last_mark_is_that_of_the_same_round(comm):
    """Marks take 0, 2, 4, 0 ... ms: with the mark of another round some tail would be negative."""

    def make(lane):
        runner = blocking(lane)
        receive, number = runner.mark, count()

        def mark(index):
            if index == 0:
                time.sleep(0.002 * (next(number) % 3))
            receive(index)

        runner.mark = mark
        return runner

    found = swept(comm, [Contestant("uneven", make, [ONE_BY_ONE])], "--iterations", "12",
                  places=PLACES[:1])
    (row,) = found[PLACES[0].order]
    assert len(row.details["after last"]) == 12
    if comm.rank == 0:
        assert min(row.details["after last"]) > 0
