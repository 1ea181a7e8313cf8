"""RMA-MT without MPI: who transfers what, and the file of cells."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from onesided.apps.bench.store import Part, Store
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Parser
from onesided.apps.cli.report import Row
from onesided.apps.papers import options as given
from onesided.apps.papers.rmamt_cell import (
    PATTERNS,
    SEND,
    TWO_SIDED,
    Cell,
    Plan,
    Task,
    batches,
    cells_of,
    check,
    distances,
    plan_of,
)
from onesided.apps.papers.rmamt_compiled import Content, Layout, Memory, messages_of
from onesided.apps.papers.rmamt_epochs import OPERATIONS, SYNCHRONISATIONS, steps_of
from onesided.apps.papers.rmamt_worker import FREE, part, unbound

PLAN = Plan(64, 1 << 20, 6, 2, 10, 0.1, 5.0)
CELL = Cell("latency", "fence", "put", 2, 1024, "multiple")


def options(*words):
    parser = Parser()
    given.bench_rma_mt(parser)
    return parser.parse_args(["-o", "folder", *words])


# -- the matrix ------------------------------------------------------------------------------------


def test_the_options_name_what_there_is():
    assert list(given.RMA_MT_PATTERNS) == list(PATTERNS)
    assert list(given.SYNCS) == list(SYNCHRONISATIONS)
    assert list(given.OPS) == list(OPERATIONS)


def test_the_full_matrix_is_that_of_the_paper():
    cells = cells_of(options())
    assert {cell.threads for cell in cells} == {0, 1, 2, 4, 8, 16}
    sizes = {name: sorted({c.size for c in cells if c.pattern == name}) for name in PATTERNS}
    assert len(sizes["latency"]) == len(sizes["bandwidth"]) == 20
    assert sizes["latency"][:3] == [1, 16, 32]
    assert sizes["rate-halo"] == [1 << power for power in range(23)]
    for name in PATTERNS:
        here = [c for c in cells if c.pattern == name and c.op != SEND]
        assert len(here) == 4 * 2 * (5 + 1) * len(sizes[name])
        baselines = [c for c in cells if c.pattern == name and c.op == SEND]
        assert {(c.sync, c.threads) for c in baselines} == {(TWO_SIDED, 0)}
        assert {c.level for c in baselines} == {"single", "multiple"}
    assert len(cells) == len({cell.name for cell in cells})


def test_threads_need_the_level_multiple():
    for cell in cells_of(options("--quick")):
        assert cell.is_two_sided or (cell.threads > 0) == (cell.level == "multiple")


def test_too_many_threads_are_refused():
    with pytest.raises(CommandError, match="--threads: 65: at most 64"):
        options("--threads", "65")


def test_a_target_outside_of_the_window_is_refused():
    words = ["--threads", "4", "--sizes", "1K", "--patterns", "rate-halo", "--window", "8K"]
    asked = options(*words)
    with pytest.raises(CommandError, match=r"rate-halo of 4 threads .* bytes 23552 to 24576, lies"):
        check(cells_of(asked), asked)
    asked.window = 24 * 1024
    check(cells_of(asked), asked)


def test_jobs_have_cells_of_the_same_ranks_and_level():
    cells = cells_of(options("--quick"))
    found = batches(cells, 5, 50)
    assert [cell for batch in found for cell in batch.cells] == cells
    for batch in found:
        assert len(batch.cells) <= 50
        assert {cell.level for cell in batch.cells} == {batch.level}
        assert {PATTERNS[cell.pattern].ranks(5) for cell in batch.cells} == {batch.ranks}
    assert {batch.ranks for batch in found} == {2, 4, 5}


def test_a_task_is_read_as_it_was_written(tmp_path):
    task = Task(cells_of(options("--quick"))[:5], plan_of(options("--quick")), "loop.so")
    task.write(tmp_path / "cells.json")
    assert Task.read(tmp_path / "cells.json") == task
    (tmp_path / "cells.json").write_text('{"cells": [{}]}')
    with pytest.raises(CommandError, match="no cells of bench rma-mt"):
        Task.read(tmp_path / "cells.json")


# -- who transfers, and what -----------------------------------------------------------------------


@pytest.mark.parametrize("ranks", range(2, 10))
@pytest.mark.parametrize("name", list(PATTERNS))
def test_what_a_rank_sends_another_one_expects(name, ranks):
    pattern = PATTERNS[name]
    ranks = pattern.ranks(ranks)
    routes = [pattern.route(rank, ranks, 6) for rank in range(ranks)]
    for rank, route in enumerate(routes):
        assert rank not in (*route.outgoing, *route.incoming)
        for slot, target in enumerate(route.outgoing):
            assert routes[target].incoming[slot] == rank
        for slot, origin in enumerate(route.incoming):
            assert routes[origin].outgoing[slot] == rank
    if name == "rate-halo":
        assert {len(route.outgoing) for route in routes} == {6}


def test_neighbors_are_the_nearest_on_both_sides():
    assert distances(9, 6) == [1, 8, 2, 7, 3, 6]
    assert distances(2, 3) == [1, 1, 1]
    assert distances(4, 6) == [1, 3, 2, 1, 3, 2]


@pytest.mark.parametrize(("slots", "threads", "messages", "size"), [(1, 1, 1, 1), (6, 4, 3, 5)])
def test_no_two_messages_share_a_byte(slots, threads, messages, size):
    layout = Layout(slots, threads, messages, size)
    used = np.zeros(layout.nbytes, int)
    for thread in range(threads):
        for slot, place in layout.places(thread):
            part = layout.slot(slot)
            assert part.start <= place
            assert place + size <= part.stop
            used[place : place + size] += 1
    assert (used == 1).all()


def test_messages_are_fewer_where_they_are_large():
    assert messages_of(64, 1, 4, 1024, 1 << 20) == 64
    assert messages_of(64, 1, 4, 1 << 16, 1 << 20) == 4
    assert messages_of(64, 6, 16, 1 << 22, 1 << 20) == 1


def test_targets_have_nothing_to_do():
    layout = Layout(1, 3, 2, 8)
    assert steps_of(layout, []) == [[], [], []]
    assert [len(part) for part in steps_of(layout, [1])] == [2, 2, 2]


def test_data_differ_by_rank_turn_and_place():
    content, part = Content(), slice(70000, 70256)
    first = content.of(0, 1, part)
    assert (first != content.of(1, 1, part)).all()
    assert (first != content.of(0, 2, part)).all()
    assert (first != content.of(0, 1, slice(70256, 70512))).any()
    assert (content.of(0, 1, slice(69900, 70256))[100:] == first).all()


def test_every_message_is_looked_at():
    layout = Layout(2, 2, 3, 5)
    mine, theirs = (np.zeros(layout.nbytes, np.uint8) for _ in range(2))
    memory = Memory(layout, mine, theirs, 0, [1, 2])
    memory.fill(1)
    assert memory.wrong(1) == layout.count
    for slot, giver in enumerate((1, 2)):
        theirs[layout.slot(slot)] = Content().of(giver, 1, layout.slot(slot))
    assert memory.wrong(1) == 0
    theirs[7] += 1
    theirs[29] += 1
    assert memory.wrong(1) == 2
    assert memory.wrong(2) == layout.count


# -- the file of cells -----------------------------------------------------------------------------


GOOD, FAILED = Part([Row({"op": "put"}, [1.0])]), Part([Row({"op": "get"}, reason="crash: gone")])


def told(parts):
    return {name: [row.record() for row in part.rows] for name, part in parts.items()}


def test_a_killed_run_goes_on(tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    assert store.begin({"ranks": 2}) == {}
    store.add("one", GOOD)
    with open(store.path, "a") as file:
        file.write('{"name": "tw')
    again = Store(store.path)
    assert told(again.begin({"ranks": 2})) == told({"one": GOOD})
    again.add("two", FAILED)
    assert told(Store(store.path).parts()) == told({"one": GOOD, "two": FAILED})


def test_other_settings_are_refused(tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    store.begin({"ranks": 2, "plan": asdict(PLAN)})
    with pytest.raises(CommandError, match=r"other settings \(ranks: 2 then, 4 now\)"):
        store.begin({"ranks": 4, "plan": asdict(PLAN)})


def test_failures_can_be_forgotten(tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    store.begin({})
    store.add_machine({"ranks": 2, "thread_level": "single"})
    store.add_machine({"ranks": 4, "thread_level": "multiple"})
    store.add("bad", FAILED)
    store.add("good", GOOD)
    store.forget_failures()
    assert list(store.begin({})) == ["good"]
    assert store.machine() == {"ranks": 4, "thread_level": "single, multiple"}


# -- where threads run -----------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "ranks"), [(2, 2), (5, 2), (8, 3), (4, 1)])
def test_ranks_share_the_cores_of_a_host(cores, ranks):
    usable = [list(range(10, 10 + cores))] * ranks
    parts = [part(usable, place) for place in range(ranks)]
    assert [core for each in parts for core in each] == usable[0]
    lengths = {len(each) for each in parts}
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 1


def test_ranks_that_are_bound_or_too_many_stay_where_they_are():
    assert part([[0], [1]], 0) == []
    assert part([[0, 1], [0, 1], [0, 1]], 1) == []


def test_a_binding_that_was_asked_for_stays():
    assert unbound({FREE[0]: "core"}) == {FREE[1]: "none"}
