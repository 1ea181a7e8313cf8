"""What a benchmark keeps while it measures: a killed one goes on, and no half of a file is left."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from onesided.apps.bench import store
from onesided.apps.bench import sweep as engine
from onesided.apps.bench.store import Parts
from onesided.apps.cli import launch
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.files import beside, check_files, is_stream, unwritable
from onesided.apps.cli.launch import GOES_ON
from onesided.apps.cli.machine import environment
from onesided.apps.cli.main import build_parser
from onesided.apps.cli.options import FileName, Options, Picture
from onesided.apps.cli.report import Report, Row, write_json
from onesided.apps.cli.statistics import Verdict
from onesided.apps.solvers.solve import check_output, write_solution

COMM = MPI.COMM_SELF
ROW = Row(
    {"method": "p2p", "bytes": "8 B"}, [2.0, 4.0, 3.0], 1.0, 8, {"mpi": [4.0, 4.0, 4.0]},
    {"pack": [1.0]}, {"more": None, "kernel": "own"}, Verdict(1e-9, 1e-8), used="p2p",
    ranks=[1.0, 2.0],
)  # fmt: skip


def benchmark(path, killed_at=None, inputs=(), **given):
    """Three parts; returns the report and which parts were measured."""
    report = Report("bench three", {"iterations": 3, **given}, {"ranks": 1})
    parts, measured = Parts(COMM, report, str(path), inputs), []

    def measure(part, name):
        measured.append(name)
        if name == killed_at:
            raise KeyboardInterrupt
        part.rows += [ROW, Row({"method": name}, reason="no such window")]
        part.remarks.append(f"remark {name}")
        part.verdicts[name] = Verdict(0.0, 1.0)
        part.pattern[name] = [1, 2]

    for name in ("one", "two", "three"):
        parts.add(name, lambda part, name=name: measure(part, name))
    report.finish(COMM, Options(json=str(path)))
    return report, measured


def test_a_killed_benchmark_goes_on_where_it_was(tmp_path):
    path = tmp_path / "out.json"
    with pytest.raises(KeyboardInterrupt):
        benchmark(path, "three")
    assert [each.name for each in tmp_path.iterdir()] == ["out.json.part"]
    with open(beside(str(path)), "a") as file:
        file.write('{"name": "thr')  # cut off
    report, measured = benchmark(path)
    assert measured == ["three"]
    at_once, all_measured = benchmark(tmp_path / "other.json")
    assert all_measured == ["one", "two", "three"]
    assert [row.record() for row in report.rows] == [row.record() for row in at_once.rows]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.json", "out.json"]
    one, other = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("out", "other"))
    del one["circumstances"], other["circumstances"]
    assert one == other
    assert one["pattern"] == {"ranks": 1, "one": [1, 2], "two": [1, 2], "three": [1, 2]}


def test_with_other_options_it_begins_anew(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    with pytest.raises(KeyboardInterrupt):
        benchmark(path, "two")
    with pytest.raises(KeyboardInterrupt):
        benchmark(path, "three", memory="plain")
    with monkeypatch.context() as patched:
        patched.setattr(store.Layout, "of", lambda comm: store.Layout((1, 1)))
        with pytest.raises(KeyboardInterrupt):
            benchmark(tmp_path / "spread.json", "two")
    assert benchmark(tmp_path / "spread.json")[1] == ["one", "two", "three"]
    assert benchmark(path, memory="plain")[1] == ["three"]
    assert benchmark(path, memory="plain")[1] == ["one", "two", "three"]  # it had come to its end


def test_a_run_that_goes_on_writes_its_checkpoint(tmp_path, monkeypatch):
    path, state = tmp_path / "out.json", tmp_path / "state.h5"
    words = f"heat --shape 6 6 --steps 2 --repeats 1 --comm grid --checkpoint {state} --json {path}"
    options = build_parser().parse_args(words.split())

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Report, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            options.command.run(COMM, options)
    state.unlink()
    assert options.command.run(COMM, options) == 0
    assert state.exists()


def test_a_row_is_the_same_after_it_was_kept():
    assert Row.of(json.loads(json.dumps(asdict(ROW)))).record() == ROW.record()
    with pytest.raises(KeyError):
        Row.of({"labels": {}})


def test_what_cannot_be_read_is_one_sentence(tmp_path):
    path = tmp_path / "out.json"
    with pytest.raises(KeyboardInterrupt):
        benchmark(path, "two")
    kept = beside(str(path))
    kept.write_text(kept.read_text().replace('"remarks"', '"marks"'))
    with pytest.raises(CommandError, match="a part cannot be read"):
        benchmark(path)
    kept.write_text("somebody else's\n")
    with pytest.raises(CommandError, match="is in the way"):
        benchmark(path)
    assert kept.read_text() == "somebody else's\n"


def test_what_open_mpi_tells_a_job_does_not_tell_environments_apart(monkeypatch):
    before = environment()
    for name in ("ess_base_jobid", "orte_hnp_uri", "initial_wdir"):
        monkeypatch.setenv(f"OMPI_MCA_{name}", "1234")
    assert environment() == before
    monkeypatch.setenv("OMPI_MCA_osc", "rdma")
    assert environment() == before | {"OMPI_MCA_osc": "rdma"}


def test_with_other_code_or_another_environment_it_begins_anew(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    for name in ("code", "environment", "circumstances"):
        with pytest.raises(KeyboardInterrupt):
            benchmark(path, "three")
        other = {"MPIR_CVAR_X": "1", "binding": [[99]]}
        monkeypatch.setattr(store, name, lambda *_, other=other: other)
        assert benchmark(path)[1] == ["one", "two", "three"]


def test_of_other_inputs_or_after_a_first_line_that_was_cut_off_it_begins_anew(tmp_path):
    path, matrix = tmp_path / "out.json", tmp_path / "a.mtx"
    for words, measured in (("3", ["three"]), ("4", ["one", "two", "three"])):
        matrix.write_text("3")
        with pytest.raises(KeyboardInterrupt):
            benchmark(path, "three", [matrix])
        matrix.write_text(words)
        assert benchmark(path, None, [matrix])[1] == measured
    beside(str(path)).write_text('{"sett')
    assert benchmark(path)[1] == ["one", "two", "three"]


def test_a_sweep_goes_on_with_the_cases_that_are_missing(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    words = "bench alltoallv --comm p2p --sizes 64 128 256 --iterations 2 --json".split()
    options = build_parser().parse_args([*words, str(path)])
    names, original = [], engine.measure

    def measure(comm, case, *others):
        names.append(case.name)
        if len(names) == 2:
            raise KeyboardInterrupt
        original(comm, case, *others)

    monkeypatch.setattr(engine, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        options.command.run(COMM, options)
    assert not path.exists()
    assert options.command.run(COMM, options) == 0
    assert names[0] not in names[1:]
    assert names[1] == names[2]
    rows = json.loads(path.read_text())["rows"]
    assert len({tuple(row["labels"].values()) for row in rows}) == len(rows) == 12
    assert not beside(str(path)).exists()


@pytest.mark.parametrize(
    ("seconds", "limit", "share"), [("600", "120", 60.0), ("8", "120", 4.0), ("8", "3", 1.5)]
)
def test_cases_share_the_time_and_none_measures_so_long_that_it_would_be_ended(
    monkeypatch, seconds, limit, share
):
    words = f"bench rma-mt --patterns latency --threads 1 --sizes 1 8 --seconds {seconds}"
    options = build_parser().parse_args([*words.split(), "--limit", limit])
    given = []
    monkeypatch.setattr(engine, "measure", lambda comm, case, options, *more: given.append(more[0]))
    options.command.run(COMM, options)
    assert given == [share, share]


def test_a_case_in_which_a_job_ended_is_measured_by_its_variants(tmp_path, monkeypatch):
    """What a second job finds where the first one died, and a third one, in the same variant."""
    path = tmp_path / "out.json"
    words = "bench rounds --comm p2p,rma-notify --memory slots --sizes 64 --iterations 2 --json"
    options = build_parser().parse_args([*words.split(), str(path)])
    options.limit, options.seconds = 60.0, 600.0
    measured, original = [], engine.measure

    def measure(comm, case, *others):
        measured.append(case.piece)
        assert others[1] == 30.0, "it would be ended while it measures"
        if case.piece != "rma-notify slots":
            if not case.piece:
                raise KeyboardInterrupt
            return original(comm, case, *others)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "measure", measure)
    for job in range(3):
        if job:
            monkeypatch.setenv(GOES_ON, "1")
        if job < 2:
            with pytest.raises(KeyboardInterrupt):
                options.command.run(COMM, options)
    assert options.command.run(COMM, options) == 0
    assert measured == ["", "mpi plain", "p2p slots", "rma-notify slots"]
    rows = json.loads(path.read_text())["rows"]
    assert [row["labels"]["method"] for row in rows] == ["mpi", "p2p", "rma-notify"]
    assert "mpi" in rows[1]["ratios"]
    assert "held up for 60" in rows[2]["reason"]


def test_a_job_that_ends_in_a_case_is_followed_by_another(tmp_path, monkeypatch):
    path, kept, jobs = tmp_path / "out.json", tmp_path / "out.json.part", []

    def launched(words, ranks, watch, asked, goes_on):
        jobs.append(goes_on)
        kept.write_text("x" * len(jobs))
        if len(jobs) == 3:
            kept.unlink()
        return 0 if len(jobs) == 3 else 134

    monkeypatch.setattr(launch, "launch", launched)
    options = Options(json=FileName(path), limit=5.0, ranks=2)
    assert launch.launch_by_cases(["bench"], options) == 0
    assert jobs == [False, True, True]
    jobs.clear()
    monkeypatch.setattr(launch, "launch", lambda *_, **__: jobs.append(kept.write_text("x")) or 134)
    assert launch.launch_by_cases(["bench"], options) == 134  # it came no farther
    assert len(jobs) == 2


def test_a_solution_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(*given):
        raise OSError(28, "No space left on device")

    path = tmp_path / "x.npy"
    path.write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CommandError, match="No space left on device"):
        write_solution(COMM, str(path), np.ones(3))
    assert [each.name for each in tmp_path.iterdir()] == ["x.npy"]
    assert path.read_text() == "before"
    with pytest.raises(CommandError, match=r"x\.h5: a vector is written as \.npy"):
        check_output("x.h5")


# -- files ----------------------------------------------------------------------------------------


def test_a_file_that_is_not_whole_is_not_there(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("before")
    with pytest.raises(TypeError, match="set cannot be written"):
        write_json(str(path), {"command": {1}})
    assert path.read_text() == "before"
    write_json(str(path), {"command": "fft"})
    assert json.loads(path.read_text())["command"] == "fft"
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]


def test_to_look_whether_a_file_can_be_written_makes_none(tmp_path):
    pytest.importorskip("matplotlib")
    names = {"json": FileName(tmp_path / "out.json"), "picture": Picture(tmp_path / "x.png")}
    check_files(COMM, Options(**names))
    assert not list(tmp_path.iterdir())
    for path, words in (
        (tmp_path, "Is a directory"), (tmp_path / "none" / "x.json", "No such file"),
    ):  # fmt: skip
        with pytest.raises(CommandError, match=words):
            check_files(COMM, Options(json=FileName(path)))


@pytest.mark.parametrize(("words", "told"), [
    ("spmv {0}/a.mtx --json {0}/../{1}/a.mtx", "named twice, as "),
    ("generate grid7 --shape 3 -o {0}/a.mtx --json {0}/a.mtx", "named twice, as "),
    ("heat --restart {0}/a.h5 --checkpoint {0}/a.h5", ""),  # goes on, and replaces it
    ("spmv {0}/a.mtx --json /dev/null", ""),
    ("bench spmv --matrices {0}/a.mtx {0}/a.mtx --json {0}/b.json", ""),
])  # fmt: skip
def test_no_file_is_written_that_is_also_read_or_written_again(tmp_path, words, told):
    options = build_parser().parse_args(words.format(tmp_path, tmp_path.name).split())
    with pytest.raises(CommandError, match=told) if told else contextlib.nullcontext():
        check_files(COMM, options)


def test_a_link_stays_a_link_and_numbers_that_are_none_are_null(tmp_path):
    path, link = tmp_path / "out.json", tmp_path / "link.json"
    path.write_text("before")
    link.symlink_to(path)
    write_json(str(link), {"error": float("nan"), "most": float("inf")})
    assert link.is_symlink()
    found = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (found["error"], found["most"]) == (None, None)


def test_a_pipe_has_no_parts_and_a_folder_without_leave_is_found_before_the_work(tmp_path):
    assert is_stream(Path("/dev/stdout"))
    assert not is_stream(tmp_path / "out.json")
    assert unwritable(str(tmp_path / "none" / "x.json"))
