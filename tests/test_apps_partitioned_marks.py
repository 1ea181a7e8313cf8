"""What the benchmark of partitioned sends is made of: orders, threads, marks; no MPI."""

from __future__ import annotations

import itertools
import time

import pytest

from onesided.apps.bench.store import Part
from onesided.apps.cli.report import Row
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.partitioned import (
    ORDERS,
    Runner,
    count_native_mistakes,
    marks,
    rectangle,
    runs,
)

SIZES = [1, 2, 7, 16, 36, 101, 256]
TEAMS = [1, 2, 3, 4, 16]


# -- orders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize(("partitions", "threads"), list(itertools.product(SIZES, TEAMS)))
def test_every_partition_is_marked_once(name, partitions, threads):
    shares = ORDERS[name](partitions, threads)
    assert len(shares) <= threads
    assert sorted(itertools.chain(*shares)) == list(range(partitions))
    for share in shares:
        assert [i for low, high in runs(share) for i in range(low, high + 1)] == share


@pytest.mark.parametrize(("partitions", "threads"), list(itertools.product(SIZES, TEAMS)))
def test_from_left_to_right_a_thread_has_one_range(partitions, threads):
    shares = ORDERS["left-to-right"](partitions, threads)
    assert {len(runs(share)) for share in shares if share} == {1}
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1


def test_the_random_order_is_the_same_for_any_number_of_threads():
    divide = ORDERS["randomized"]
    assert divide(50, 1) == divide(50, 1) != ORDERS["left-to-right"](50, 1)
    assert list(itertools.chain(*divide(50, 4))) == divide(50, 1)[0]


def test_neighbors_get_the_border_of_a_tile_first():
    (cells,) = ORDERS["neighborhood"](16, 1)
    assert cells == [0, 1, 2, 3, 4, 7, 8, 11, 12, 13, 14, 15, 5, 6, 9, 10]
    tiles = ORDERS["neighborhood"](36, 4)
    assert tiles[1] == [3, 4, 5, 9, 11, 15, 16, 17, 10]


@pytest.mark.parametrize("cells", [*SIZES, 12, 1 << 14])
def test_grids_are_as_square_as_they_can_be(cells):
    rows, columns = rectangle(cells)
    assert rows * columns == cells
    assert not any(cells % more == 0 for more in range(rows + 1, columns))


# -- threads and marks -----------------------------------------------------------------------------


def test_marks_follow_the_order():
    share = [4, 5, 6, 2, 3]
    marked, ready = [], []

    def mark(*which):
        ready.append(time.perf_counter())
        marked.append(which)

    runner = Runner(mark=mark, mark_range=mark)
    one, many = (marks(runner, way, share) for way in ("one by one", "in bulk"))
    for work, expected in ((one, [4, 5, 6, 2, 3]), (many, [(4, 6), (2, 3)])):
        latest = work()
        assert ready[-2] <= latest <= ready[-1]
        assert [which[0] if len(which) == 1 else which for which in marked] == expected
        marked.clear()
    assert marks(runner, "", share) is None


def test_wrong_partitions_of_the_mpi_s_own_are_counted_and_are_no_mistake_of_the_command():
    metrics = {"partition_bytes": 4}
    part = Part([Row({"method": name}, [1.0], nbytes=64, metrics=dict(metrics),
                     verdict=Verdict(3 / 16, 0.0)) for name in ("psend", "rma")])  # fmt: skip
    count_native_mistakes(part)
    (native, ours), (remark,) = part.rows, part.remarks
    assert (native.metrics["wrong partitions"], native.verdict) == (3, None)
    assert (ours.metrics, ours.verdict.passed) == (metrics, False)
    assert remark.startswith("psend is the MPI's own")


def test_nobody_marks_where_nothing_can_be_marked():
    assert marks(Runner(), "one by one", [0]) is None
    assert marks(Runner(mark=print), "in bulk", [0]) is None
