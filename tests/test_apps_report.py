"""``onesided report``: a page that stands by itself, its figures, tables and files."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import commands
import envelopes
import pytest
from envelopes import options, page, parsed
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from onesided.apps.cli import machine
from onesided.apps.cli.report import Row
from onesided.apps.miniapps.overhead import listings
from onesided.apps.report import command as report_command
from onesided.apps.report.claim import Outcome
from onesided.apps.report.claims import CLAIMS
from onesided.apps.report.command import make
from onesided.apps.report.figure import MOST, Scale


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a result of every kind that has a section of its own, and others."""
    folder = tmp_path_factory.mktemp("results")
    envelopes.world(folder, True)
    timed = {"method": "p2p", "product": "scipy"}
    envelopes.write(folder / "spmv.json", "bench spmv", [Row(timed, [1e-3, 2e-3])])
    reached = {"target": 0.8, "reached": 0.5}
    labels = {"case": "wave", "method": "p2p", "opponent": "PETSc", "bound": "at most"}
    rows = [
        Row(labels, [1e-3], details={"opponent's": [2e-3]}, values=reached),
        Row({"case": "wave", "opponent": "SciPy"}, reason="not here"),
    ]
    envelopes.write(folder / "suite.json", "bench spmv --targets", rows)
    parts = {"communication": [1e-3], "compute": [2e-3]}
    rows = [Row({"application": "cg", "method": "p2p"}, [3e-3], 1.0, details=parts)]
    envelopes.write(folder / "apps.json", "bench apps", rows)
    _mini_app(folder / "mini.json")
    rows = [Row({"speed": str(k), "method": "p2p"}, [1e-3 / k]) for k in (1, 2, 3)]
    path = envelopes.write(folder / "unknown.json", "bench unheard-of", rows)
    envelopes.edit(path, list_of_things=[{"name": "one", "number": 1.5}, {"name": "two"}])
    envelopes.write(folder / "bars.json", "other", [
        Row({"direction": way, "method": "p2p"}, [1e-3]) for way in ("forward", "backward")
    ])  # fmt: skip
    return folder


def _mini_app(path: Path) -> None:
    """A mini-application on one and two ranks, in two kinds of scaling, of which one has a hole."""
    rows = [
        Row(
            {"scaling": scaling, "ranks": str(ranks), "method": method},
            [ranks * seconds, ranks * (seconds + 1e-3)],
            details={"exchange": [1e-4, 1e-4]},
        )
        for scaling, counts in (("weak", (1, 2)), ("strong", (2,)))
        for ranks in counts
        for method, seconds in (("two-sided", 2e-3), ("rma-notify", 1e-3))
    ]
    envelopes.write(path, "hpccg", rows)
    levels = [{"x": n, "y": n, "z": 2 * n, "max error": n**-2, "rms error": 0.1} for n in (8, 16)]
    other = path.with_name("minife.json")
    envelopes.write(other, "minife", rows)
    envelopes.edit(other, levels=levels)
    found = {name: listing.records() for name, listing in listings(rows).items()}
    envelopes.edit(path, **found)
    third = path.with_name("minimd.json")
    envelopes.write(third, "minimd", rows)
    envelopes.edit(third, **found)


@pytest.fixture(scope="module")
def text(results: Path) -> str:
    """The page about all of them."""
    return page(results)


class Tags(HTMLParser):
    """Every tag with its attributes, and that each is closed in its turn."""

    VOID = ("meta", "br", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_by_itself(text):
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    kinds = {tag for tag, _ in tags.seen}
    assert kinds.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base"})
    for word in ("http:", "https:", "src=", "url(", "@import", "file:"):
        assert word not in text
    ids = [about["id"] for _, about in tags.seen if "id" in about]
    assert len(ids) == len(set(ids))
    links = [about["href"] for _, about in tags.seen if "href" in about]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert all(set(about.get("aria-labelledby", "").split()) <= set(ids) for _, about in tags.seen)
    assert ("html", {"lang": "en"}) in tags.seen
    assert "prefers-color-scheme: dark" in text
    assert any(about.get("name") == "viewport" for tag, about in tags.seen if tag == "meta")


def test_the_style_needs_no_escaping():
    style = Path(report_command.__file__).parents[1] / "data" / "report.css"
    assert not set(style.read_text()) & set("<>&\"'")


def test_every_figure_is_told_in_words_and_has_its_table(text):
    root = parsed(text)
    figures = list(root.iter("figure"))
    assert len(figures) > 15
    titles = set()
    for figure in figures:
        drawing = figure.find("svg")
        assert drawing.get("role") == "img"
        assert drawing.findtext("title")
        assert drawing.findtext("desc")
        titles.add(drawing.findtext("title"))
        rows = figure.findall("details/div/table/tbody/tr")
        assert rows
        assert all(row.find("th").get("scope") == "row" for row in rows)
        heads = figure.findall("details/div/table/thead/tr/th")
        assert all(head.get("scope") == "col" for head in heads)
        assert all(len(row) == len(heads) for row in rows)
    for wanted in (
        "Time over bytes, receiving into 'empty' memory",
        "Elements from rank to rank: mesh, spmv",
        "LogGP beside the times on 96 ranks",
        "Time over that of PETSc",
        "Time over speed",
        "Time of other",
        "Time of a run: application cg",
        "hpccg, weak scaling: time over that of two-sided",
        "hpccg, strong scaling: time over that of two-sided",
        "minimd, weak scaling: time over that of two-sided",
        "Where the time goes: scaling weak, ranks 2",
        "Errors on finer and finer meshes",
    ):
        assert wanted in titles


def test_what_is_drawn_is_what_the_table_says(text):
    root = parsed(text)
    lines = 0
    for figure in root.iter("figure"):
        marks = figure.findall("svg/g/polygon/title")
        cells = figure.findall("details/div/table/tbody/tr/td")
        if marks:
            lines += 1
            numbers = sorted(mark.text.rsplit(": ", 1)[1] for mark in marks)
            assert numbers == sorted(cell.text for cell in cells if cell.text != "-")
            box = [float(x) for x in figure.find("svg").get("viewBox").split()]
            for polygon in figure.findall("svg/g/polygon"):
                for point in polygon.get("points").split():
                    x, y = map(float, point.split(","))
                    assert 0 <= x <= box[2]
                    assert 0 <= y <= box[3]
    assert lines > 8


def test_every_result_is_there_with_its_rows_and_remarks(results, text):
    for path in results.glob("*.json"):
        content = json.loads(path.read_text())
        assert path.name in text
        assert content["command"] in text
    root = parsed(text)
    whole = "".join(root.itertext())
    assert "not here" in whole  # why something was not measured
    assert "list of things" in whole
    assert whole.count("Said.") == len(list(results.glob("*.json")))
    assert "A processor" in whole


def rows_of(root: ElementTree.Element, caption: str) -> list[list[str]]:
    tables = [t for t in root.iter("table") if caption in (t.findtext("caption") or "")]
    assert len(tables) == 1
    return [["".join(cell.itertext()) for cell in row] for row in tables[0].findall("tbody/tr")]


def test_break_even_is_that_of_the_equations_and_never_without_gain(tmp_path):
    ratios = {
        "rma-fence": dict.fromkeys(envelopes.SIZES, 0.75),
        "p2p": dict.fromkeys(envelopes.SIZES, 1.5),
    }
    rows = list(envelopes.exchanges(ratios, setup=0.9e-9))
    envelopes.write(tmp_path / "a.json", "bench alltoallv", rows)
    root = parsed(page(tmp_path))
    counts = rows_of(root, "N: bench alltoallv, 2 ranks on 1 node (a.json)")
    assert [row[2:] for row in counts] == [["empty", "4", "never"]] * len(envelopes.SIZES)
    table = rows_of(root, "T_init and times: bench alltoallv, 2 ranks on 1 node (a.json)")
    assert len(table) == 2 * len(envelopes.SIZES)
    for row in table:
        assert row[-1] == {"rma-fence": "4", "p2p": "never"}[row[2]]
    assert table[-2][-4:-1] == ["15.1 ms", "16.8 ms", "12.6 ms"]


def test_figures_are_files_too(results, tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("exchanges-448", "patterns", "suite"):  # every kind of figure
        (tmp_path / f"{name}.json").write_bytes((results / f"{name}.json").read_bytes())
    folder = tmp_path / "deep" / "figures"
    root = parsed(page(tmp_path, figures=str(folder)))
    titles = [figure.findtext("figcaption") for figure in root.iter("figure")]
    for ending, least in ((".png", 5000), (".csv", 10)):
        files = sorted(folder.glob(f"[0-9]*{ending}"))
        assert len(files) == len(titles)
        assert all(file.stat().st_size > least for file in files)
    place = next(k for k, title in enumerate(titles) if title.startswith("Time over bytes"))
    with open(sorted(folder.glob("*.csv"))[place], newline="") as file:
        heads, *rows = list(csv.reader(file))
    assert heads == ["bytes", "mpi", "rma-fence", "rma-lock", "rma-fence-paper", "rma-lock-paper"]
    assert [float(row[0]) for row in rows] == list(map(float, envelopes.SIZES))
    assert float(rows[-1][2]) == pytest.approx(0.5 * envelopes.SIZES[-1] * 1e-9)
    with open(folder / "claims.csv", newline="") as file:
        verdicts = list(csv.DictReader(file))
    assert {each["claim"] for each in verdicts} == {claim.words for claim in CLAIMS}
    assert {each["verdict"] for each in verdicts} <= {outcome.value for outcome in Outcome}
    assert len({each["mpi"] for each in verdicts}) == 1


def test_without_matplotlib_the_page_comes_and_names_the_pictures(results, tmp_path, monkeypatch):
    monkeypatch.setattr(report_command, "find_spec", lambda name: None)
    told = make(options(results, figures=str(tmp_path / "figures")))
    assert re.search(r"PNG skipped, it needs matplotlib .*: 01-\S+\.png, 02-", told[-1])
    assert told[-1] in (results / "report.html").read_text()
    files = {path.suffix for path in (tmp_path / "figures").iterdir()}
    assert files == {".csv"}


@given(
    st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=8),
    st.sampled_from([0, 2, 10]),
    st.booleans(),
)
def test_an_axis_shows_all_numbers_and_round_ones(numbers, base, zero):
    scale = Scale.over(numbers, base, zero=zero)
    assert all(-1e-9 <= scale.place(number) <= 1 + 1e-9 for number in numbers)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 2 * MOST
    assert ticks == sorted(set(ticks))
    assert all(-1e-6 <= scale.place(tick) <= 1 + 1e-6 for tick in ticks)


@pytest.mark.parametrize("number", [0.0, -1.0, math.nan, math.inf])
def test_what_has_no_place_on_an_axis_is_left_out(number):
    scale = Scale.over([1.0, number, 100.0], 10)
    assert scale == Scale.over([1.0, 100.0], 10)
    assert not scale.shows(number)


def test_the_command(results, tmp_path):
    target = tmp_path / "r.html"
    finished = commands.onesided("report", str(results), "-o", str(target))
    assert finished.code == 0, finished
    assert finished.out.count("r.html") == 1
    assert "claims of papers" in finished.out
    parsed(target.read_text())


def test_a_mistake_is_one_sentence_in_a_job(tmp_path):
    finished = commands.onesided("report", str(tmp_path / "none"), ranks=2)
    assert finished.code == 2, finished
    assert finished.sentences == [f"onesided: {tmp_path / 'none'}: No such folder"]


def test_a_result_tells_all_cores_once():
    found = machine.facts(MPI.COMM_SELF)
    assert found["hosts"] == 1
    assert found["all_cores"] == len(os.sched_getaffinity(0))
