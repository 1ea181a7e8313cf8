"""What a benchmark keeps while it measures: a killed one goes on, and no half of a file is left."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from mpi4py import MPI

from onesided.apps.bench.store import Part, Parts, Store
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser
from onesided.apps.cli.options import FileName, Options, Picture
from onesided.apps.cli.report import Report, Row, beside, check_files, write_json
from onesided.apps.cli.statistics import Target, Verdict
from onesided.apps.miniapps import stages as scaling
from onesided.apps.papers import alltoallv
from onesided.apps.papers.exchange import Contest

COMM = MPI.COMM_SELF
ROW = Row(
    {"method": "p2p", "bytes": "8 B"}, [2.0, 4.0, 3.0], 1.0, 8, {"mpi": [4.0, 4.0, 4.0]},
    {"pack": [1.0]}, {"more": None}, Verdict(1e-9, 1e-8), aim=Target("mpi", 0.5, least=False),
    wanted=True, used="p2p", facts={"kernel": "own"}, shown={"x": "y"}, hidden=("error",),
)  # fmt: skip


def benchmark(path, killed_at=None, **given):
    """Three parts; returns the report and which parts were measured."""
    report = Report("bench three", {"iterations": 3, **given}, {"all": {}})
    parts, measured = Parts(COMM, report, str(path)), []

    def measure(part, name):
        measured.append(name)
        if name == killed_at:
            raise KeyboardInterrupt
        part.rows += [ROW, Row({"method": name}, reason="no such window")]
        part.remarks.append(f"remark {name}")
        part.verdicts[name] = Verdict(0.0, 1.0)
        part.pattern["all"] = {name: [1, 2]}
        part.more = [name]

    for name in ("one", "two", "three"):
        assert parts.add(name, lambda part, name=name: measure(part, name)).more == [name]
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
    assert one["pattern"]["all"] == {"one": [1, 2], "two": [1, 2], "three": [1, 2]}


def test_with_other_options_it_begins_anew(tmp_path):
    path = tmp_path / "out.json"
    with pytest.raises(KeyboardInterrupt):
        benchmark(path, "two")
    with pytest.raises(KeyboardInterrupt):
        benchmark(path, "three", memory="plain")
    assert benchmark(path, memory="plain")[1] == ["three"]
    assert benchmark(path, memory="plain")[1] == ["one", "two", "three"]  # it had come to its end


def test_a_row_is_the_same_after_it_was_kept():
    assert Row.of(json.loads(json.dumps(ROW.kept()))).record() == ROW.record()
    with pytest.raises(KeyError):
        Row.of({"labels": {}})


def test_what_cannot_be_read_is_one_sentence(tmp_path):
    store, report = Store(tmp_path / "parts"), Report("bench three", {}, {})
    store.begin({"one": 1})
    with pytest.raises(CommandError, match="other settings"):
        Parts(COMM, report, None, store=store, settings={"one": 2})
    store.add("one", Part())
    text = store.path.read_text().replace('"remarks"', '"marks"')
    store.path.write_text(text)
    with pytest.raises(CommandError, match="a part cannot be read"):
        Parts(COMM, report, None, store=store, settings={"one": 1})


def test_a_benchmark_of_exchanges_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    words = "bench alltoallv --comm p2p --sizes 64 128 256 --iterations 2 --json".split()
    options = build_parser().parse_args([*words, str(path)])
    sizes, original = [], Contest.rows

    def rows(contest, problem, tick):
        sizes.append(problem.nbytes)
        if len(sizes) == 2:
            raise KeyboardInterrupt
        return original(contest, problem, tick)

    monkeypatch.setattr(Contest, "rows", rows)
    with pytest.raises(KeyboardInterrupt):
        alltoallv.run(COMM, options)
    assert not path.exists()
    assert alltoallv.run(COMM, options) == 0
    assert sizes == [64, 128, 128, 256]
    rows = json.loads(path.read_text())["rows"]
    assert len({(row["bytes"], row["labels"]["method"], row["labels"]["memory"]) for row in rows}) == len(rows) == 15


@pytest.mark.parametrize("words", [
    "hpccg --shape 4 --iterations 3 --repeats 2 --comm p2p --verify",
    "minife --shape 4 --iterations 3 --repeats 2 --comm p2p --verify",
    "minimd --shape 4 --steps 20 --repeats 2 --comm p2p --verify --kernel numpy",
])  # fmt: skip
def test_a_mini_application_goes_on(tmp_path, monkeypatch, words):
    path = tmp_path / "out.json"
    given = [*words.split(), "--scaling", "weak", "strong", "--json", str(path)]
    options = build_parser().parse_args(given)
    run = import_module(f"onesided.apps.miniapps.{given[0]}").run
    stages, original = [], scaling.among

    def among(comm, count, work):
        stages.append(count)
        if len(stages) == 2:
            raise KeyboardInterrupt
        original(comm, count, work)

    monkeypatch.setattr(scaling, "among", among)
    with pytest.raises(KeyboardInterrupt):
        run(COMM, options)
    kept = [json.loads(line) for line in beside(str(path)).read_text().splitlines()]
    times = [row["times"] for line in kept if "part" in line for row in line["part"]["rows"]]
    assert len(times) == 2
    assert run(COMM, build_parser().parse_args(given)) == 0
    content = json.loads(path.read_text())
    assert content["verified"] is True
    scalings = [row["labels"]["scaling"] for row in content["rows"]]
    assert scalings == ["weak", "weak", "strong", "strong"]
    assert [row["times_s"] for row in content["rows"]][:2] == times
    assert all("deviation_s" in row for row in content["rows"])
    assert not beside(str(path)).exists()


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
