"""What the commands say about times, and what they read from the command line; no MPI job."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from onesided.apps.cli import options
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import (
    Report,
    Row,
    across_table,
    byte_count,
    cells_of,
    duration,
    print_rows,
    row_table,
    shown,
)
from onesided.apps.cli.statistics import (
    Interval,
    Verdict,
    break_even,
    conclusion,
    quartiles,
)
from onesided.apps.tools.fft import KERNELS
from onesided.apps.tools.spmv import short_names
from onesided.collectives.tuning.defects import DEFECTS, known_defects

TIMES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=30)


def test_break_even_is_the_first_count_that_pays():
    assert break_even(1.0, 0.5, 0.25) == 4
    assert break_even(1.0, 0.6, 0.3) == 4  # 3.3 rounded up
    assert break_even(0.0, 0.5, 0.25) == 0


@pytest.mark.parametrize("persistent", [0.5, 0.6, float("nan")])
def test_break_even_is_never_without_a_gain(persistent):
    assert break_even(1.0, 0.5, persistent) is None


@given(st.floats(0, 10), st.floats(1e-6, 1), st.floats(1e-6, 1))
def test_break_even_has_paid_and_one_less_has_not(setup, baseline, persistent):
    count = break_even(setup, baseline, persistent)
    if count is None:
        assert persistent >= baseline
        return
    gain = baseline - persistent
    assert count * gain >= setup * (1 - 1e-9)
    assert (count - 1) * gain <= setup * (1 + 1e-9)


@pytest.mark.parametrize(("files", "names"), [
    ("a.mtx b.mtx.gz", "a b"), ("d1/a.mtx d2/a.mtx b.mtx", "a-1 a-2 b"),
    ("d1/a.mtx d2/a.mtx a-1.mtx", "a-1 a-2 a-1-3"),
])  # fmt: skip
def test_short_names_of_matrices_differ(files, names):
    assert short_names([Path(file) for file in files.split()]) == names.split()


@given(TIMES)
def test_quartiles_are_ordered_and_within(times):
    first, middle, third = quartiles(times)
    near = max(times) * 1e-9
    assert min(times) - near <= first <= middle + near
    assert middle <= third + near <= max(times) + 2 * near


def test_a_ratio_is_of_pairs_and_not_of_medians():
    row = Row({"method": "p2p"}, [1.0, 10.0, 100.0], against={"mpi": [2.0, 10.0, 1.0]})
    assert row.intervals["mpi"].median == 1.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.3, "12.3 s"),
        (1.0, "1.00 s"),
        (0.0123, "12.3 ms"),
        (1.5e-6, "1.50 us"),
        (2e-8, "0.02 us"),
        (0.25, "250 ms"),
        (0.9996, "1.00 s"),
        (0.9994, "999 ms"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(5, "5 B"), (1024, "1 KiB"), (32 << 10, "32 KiB"), (3 << 29, "1.5 GiB")]
)
def test_byte_count(number, text):
    assert byte_count(number) == text


@pytest.mark.parametrize(("name", "text"), [
    ("init_s", "2.00 s"), ("message_bytes", "2 B"), ("messages_per_s", "2"),
])  # fmt: skip
def test_the_end_of_a_name_tells_the_unit(name, text):
    assert shown(name, 2.0) == text


def test_row_compares_and_breaks_even():
    baseline = [2.0, 2.0, 4.0]
    row = Row({"method": "p2p"}, [1.0, 1.0, 1.0], setup=2.5, nbytes=10, against={"mpi": baseline})
    assert row.intervals["mpi"].median == 0.5
    assert row.break_even == 3
    record = json.loads(json.dumps(row.record()))
    assert record["break_even"] == 3
    assert record["times_s"] == [1.0, 1.0, 1.0]
    assert record["gigabytes_per_s"] == pytest.approx(1e-8)
    assert cells_of(record)["break-even"] == "3"
    slow = Row({"method": "slow"}, [3.0, 3.0, 5.0], setup=2.5, against={"mpi": baseline})
    assert slow.break_even == "never"
    assert Row({"method": "mpi"}, baseline, setup=1.0, against={"mpi": baseline}).break_even is None


def test_row_that_was_not_run_has_a_reason_and_no_time():
    row = Row({"method": "rma-lock"}, reason="not on this MPI")
    assert row.record() == {"labels": {"method": "rma-lock"}, "reason": "not on this MPI"}
    assert cells_of(row.record()) == {"method": "rma-lock", "not measured": "not on this MPI"}


def test_verdict_of_a_number_that_is_none():
    assert Verdict(1e-16, 1e-14).passed
    assert not Verdict(1e-3, 1e-14).passed
    assert not Verdict(float("nan"), 1e-14).passed
    assert conclusion([Verdict(0.0, 1.0)], "it").startswith("Verified")
    assert conclusion([Verdict(0.0, 1.0), Verdict(2.0, 1.0)], "it").startswith("WRONG")
    rows = [Row({}, verdict=Verdict(0.0, 1.0)), Row({}, reason="no")]
    assert Report("c", {}, {}, rows).verified is True
    assert Report("c", {}, {}, [*rows, Row({}, verdict=Verdict(2.0, 1.0))]).verified is False
    assert Report("c", {}, {}).verified is None


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("32K", 32768), ("1m", 1 << 20), ("2G", 2 << 30)]
)
def test_sizes(text, number):
    assert options.size(text) == number


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (options.positive, "0"),
        (options.positive, "-3"),
        (options.positive, "two"),
        (options.size, "K"),
        (options.size, "1.5M"),
        (options.seconds, "nan"),
        (options.seconds, "0"),
        (options.seconds, "inf"),
        (options.info_entry, "key"),
        (options.info_entry, "=value"),
        (options.grid_entry, "none"),
    ],
)
def test_values_that_make_no_sense(kind, text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not"):
        kind(text)


def test_defects_are_told_to_whom_they_concern():
    assert DEFECTS
    for defect in DEFECTS:
        assert defect in known_defects(defect.vendor, defect.first)
        assert defect not in known_defects(defect.vendor, (99, 0, 0))
        assert defect not in known_defects("Another MPI", defect.first)


# -- how sure a median is --------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "cut"), [
    (1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (100, 40), (1075, 505), (20000, 9861),
])
def test_an_interval_is_of_order_statistics_and_of_six_numbers_or_more(count, cut):
    """The binomial table of the sign test, two-sided, 5 %."""
    found = Interval.of([float(k) for k in range(1, count + 1)])
    assert found.known == (cut > 0)
    if cut:
        assert (found.low, found.high) == (cut, count + 1 - cut)
    else:
        assert "(?)" in str(found)


def test_a_quotient_of_two_runs_is_as_wide_as_both():
    one, other = [1.0] * 5 + [2.0] * 5, [4.0] * 10
    found = Interval.quotient(one, other)
    assert (found.median, found.low, found.high) == (0.375, 0.25, 0.5)
    assert not Interval.quotient([1.0], other).known


# -- tables and other forms ------------------------------------------------------------------------

ROWS = [
    Row({"bytes": size, "method": method}, [time] * 7, 1e-3, 8, {"mpi": [2.0] * 7},
        metrics={"kernel": "a", "spare_s": 0.5})
    for size in ("8 B", "1 KiB") for method, time in (("mpi", 2.0), ("p2p", 1.0))
]  # fmt: skip


def test_a_table_fits_and_says_what_it_left_out():
    table, left_out = row_table(ROWS, 80)
    assert left_out == []
    assert [column.header for column in table.columns][:2] == ["bytes", "method"]
    _, left_out = row_table(ROWS, 60)
    assert left_out[:2] == ["GB/s", "±"]


def test_sizes_stand_across_with_ratios_to_the_baseline():
    (table,) = across_table(ROWS, "bytes", 80)
    assert [column.header for column in table.columns] == ["method", "8 B", "1 KiB"]
    assert [list(column.cells) for column in table.columns][1] == ["2.00 s", "0.50±0.00"]
    assert len(list(across_table(ROWS, "bytes", 20))) == 2


@pytest.mark.parametrize("kind", ["columns", "csv", "markdown"])
def test_rows_are_columns_for_other_programs(kind, capsys):
    print_rows(ROWS, kind)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 + 1 + (kind == "markdown")
    first = {"columns": "# bytes", "csv": "bytes,method", "markdown": "| bytes | method"}[kind]
    assert lines[0].startswith(first)
    assert "8_B" in lines[1] or kind != "columns"


def test_a_wrong_row_is_wrong_in_other_forms_too(capsys):
    wrong = Row({"bytes": "8 B"}, [1.0], metrics={"wrong partitions": 3, "list": [1]},
                verdict=Verdict(0.5, 0.0))  # fmt: skip
    print_rows([wrong], "csv")
    (record,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (record["error"], record["verified"]) == ("0.5", "False")
    assert record["wrong partitions"] == "3"
    assert "list" not in record
    print_rows([wrong], "columns")
    heads, cells = capsys.readouterr().out.splitlines()
    assert len(heads.removeprefix("# ").split()) == len(cells.split())
    report = Report("c", {}, {}, [], verdicts={"the sum": Verdict(2.0, 1.0)})
    report.finish(MPI.COMM_SELF, Options(format="csv"))
    assert "the sum: 2.0e+00 WRONG" in capsys.readouterr().err


def test_what_mpi4py_fft_has_is_looked_for_without_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py_fft", None)
    found = {name: find_spec(needs) is not None for name, needs in KERNELS.items()}
    assert found["scipy"]
    assert not found["fftw"]
