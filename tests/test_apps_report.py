"""``onesided report``, ``bench compare`` and ``bench check``: pages, claims, and mistakes."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser

import commands
import pytest
from mpi4py import MPI

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Report, Row, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.apps.report import claims
from onesided.apps.report.figures import MOST_BARS, MOST_LINES, MOST_PANELS, draw, plots
from onesided.apps.report.page import outcome
from onesided.apps.report.result import Result

pytestmark = pytest.mark.one_mpi

SIZES = (1 << 10, 32 << 10, 128 << 10, 1 << 20, 2 << 20)


def exchanges(folder, name, ratio, rounds=9, ranks=2, memory="plain", sizes=SIZES):
    """What bench alltoallv writes: fence and lock take ``ratio`` of the plain call's time."""
    rows = []
    for size in sizes:
        plain = [size * 1e-9 * (1 + 0.001 * k) for k in range(rounds)]
        labels = {"ranks": str(ranks), "bytes": byte_count(size)}
        rows.append(Row({**labels, "method": "mpi", "memory": "plain"}, plain, None, size,
                        {"mpi": plain}, case=str(size)))  # fmt: skip
        for method, factor in (("rma-fence", 1.0), ("rma-lock", 1.2)):
            times = [factor * ratio * time for time in plain]
            rows.append(Row({**labels, "method": method, "memory": memory}, times, 1e-12, size,
                            {"mpi": plain}, case=str(size)))  # fmt: skip
    rows.append(Row({"ranks": "2", "bytes": "8 B", "method": "p2p"}, reason="not here"))
    report = Report("bench alltoallv", {"iterations": rounds}, {}, rows, ["Said <this>."])
    path = folder / name
    report.finish(MPI.COMM_SELF, Options(json=str(path)))
    content = json.loads(path.read_text())
    content["machine"] |= {"ranks": ranks, "all_cores": ranks, "nodes": 1, "processor": "A"}
    path.write_text(json.dumps(content))
    return path


class Tags(HTMLParser):
    """Every tag with its attributes, and that each is closed in its turn."""

    def __init__(self):
        super().__init__()
        self.seen, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page(folder, *words):
    finished = commands.onesided("report", str(folder), "-o", str(folder / "r.html"), *words)
    assert finished.code == 0, finished
    return (folder / "r.html").read_text(), finished.out


def test_the_page_stands_by_itself_and_begins_with_what_was_found(tmp_path):
    exchanges(tmp_path, "a.json", 0.5)
    text, out = page(tmp_path)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    kinds = {tag for tag, _ in tags.seen}
    assert kinds.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base"})
    ids = [about["id"] for _, about in tags.seen if "id" in about]
    assert len(ids) == len(set(ids))
    links = [about[key] for _, about in tags.seen for key in ("href", "xlink:href") if key in about]
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert "http:" not in text
    assert "rma-fence: 0.50 of the time of mpi" in text
    assert text.index("of the time of mpi") < text.index("What papers claim")
    assert "Said &lt;this&gt;." in text
    assert "not here" in text
    assert "holds here" in out


def test_verdicts_are_those_of_the_numbers(tmp_path):
    def verdicts(ratio, **more):
        path = exchanges(tmp_path, "a.json", ratio, **more)
        found = claims.judged([Result("a.json", json.loads(path.read_text()))])
        return {(each.claim.words[:40], each.variant): each.verdict for each in found}

    faster = "From 32 KiB per process on, the persiste"
    assert verdicts(0.5)[faster, "rma-fence"] == claims.HOLDS
    assert verdicts(1.5)[faster, "rma-fence"] == claims.FAILS
    assert verdicts(0.5, rounds=3)[faster, "rma-fence"] == claims.UNCLEAR
    assert verdicts(0.5)["Fence is faster than lock throughout.", "rma-fence"] == claims.HOLDS
    saves = "Fence saves 30.2 % of a call at 32 KiB, ", "rma-fence"
    assert verdicts(0.5)[saves] == claims.HOLDS
    assert verdicts(0.5, sizes=SIZES[1:3])[saves] == claims.OPEN
    assert verdicts(0.5, sizes=(64 << 10,))[saves] == claims.OPEN
    found = verdicts(0.5)
    assert found["With messages below 2 KiB, lock_all has ", ""] == claims.OPEN


@pytest.mark.parametrize(("wrong", "small", "large"), [
    (None, claims.HOLDS, claims.HOLDS),
    (("psend", 65536), claims.OPEN, claims.HOLDS),
    (("send", 65536), claims.OPEN, claims.HOLDS),
    (("persistent", 1 << 20), claims.HOLDS, claims.OPEN),
])  # fmt: skip
def test_where_a_claim_is_about_wrong_data_no_other_size_decides(wrong, small, large):
    """One is about the smallest partition, the other holds all against the largest."""
    rows = [
        Row({"order": "left-to-right", "marked": "one by one", "method": method,
             "partition": byte_count(size)}, [1.0] * 9,
            metrics={"partition_bytes": size, "bytes": 1 << 20},
            verdict=Verdict(float((method, size) == wrong), 0.0))
        for method in ("send", "psend", "persistent") for size in (65536, 1 << 20)
    ]  # fmt: skip
    content = written(rows, "bench partitioned") | {"machine": {"ranks": 2, "all_cores": 2}}
    found = {(each.claim.words[:30], each.variant): each.verdict
             for each in claims.judged([Result("a.json", content)])}  # fmt: skip
    assert found["With small partitions, partiti", "psend"] == small
    assert found["Persistent and partitioned sen", "persistent"] == large


def broadcasts(name, *places):
    """What bench broadcast found: ranks, nodes that they are on, the tree's time over linear's."""
    rows = []
    for count, spread, ratio in places:
        for method, factor in (("rma-linear", 1.0), ("rma-binomial", ratio)):
            labels = {"ranks": str(count), "bytes": "8 B", "method": method}
            rows.append(Row(labels, [factor] * 9, None, 8, metrics={"nodes": spread}))
    machine = {"ranks": 8, "all_cores": 8, "nodes": max(spread for _, spread, _ in places)}
    return written(rows, "bench broadcast", name) | {"machine": machine}


def written(rows, command="bench collectives", name="a.json"):
    return Report(command, {}, {}, rows)._content({"machine": {}}) | {"schema": 2, "versions": {}}


@pytest.mark.parametrize(("wanted", "files"), [
    (claims.HOLDS, [[(4, 1, 0.9)], [(4, 2, 0.5)]]),
    (claims.FAILS, [[(4, 1, 0.5)], [(4, 2, 0.9)]]),
    (claims.HOLDS, [[(4, 1, 0.9), (8, 2, 0.7)], [(4, 2, 0.5), (8, 2, 0.6)]]),
    (claims.OPEN, [[(4, 1, 0.9), (8, 2, 0.5)]]),
    (claims.OPEN, [[(4, 1, 0.9)], [(8, 2, 0.5)]]),  # other ranks: another line
    (claims.FAILS, [[(4, 1, 0.9)], [(4, 1, 0.4)], [(4, 2, 0.5)]]),  # not below all on one node
])  # fmt: skip
def test_a_network_is_slower_where_the_same_ranks_are_on_more_nodes(wanted, files):
    every = [Result(str(k), broadcasts(str(k), *places)) for k, places in enumerate(files)]
    found = {each.variant: each.verdict for each in claims.judged(every)
             if each.claim.words == "The tree gains more on a slower network."}  # fmt: skip
    assert found == {"rma-binomial": wanted, "passive": claims.OPEN}


def test_rounds_of_two_files_are_no_pairs(tmp_path):
    paths = [exchanges(tmp_path, f"{name}.json", 0.5) for name in "ab"]
    one, other = (Result(path.name, json.loads(path.read_text())).timed[1] for path in paths)
    assert one.over(one).high == 1.0
    assert one.over(other).high > 1.0


def test_a_picture_replaces_its_own_images_alone(tmp_path):
    pytest.importorskip("matplotlib")
    others = ["x-2024-final.png", "x-99.png", "x.png", "xy-1.png"]
    for name in [*others, "x-1.png"]:
        (tmp_path / name).write_bytes(b"")
    path = exchanges(tmp_path, "a.json", 0.5)
    content = json.loads(path.read_text())
    draw(str(tmp_path / "x.png"), content)
    assert {each.name for each in tmp_path.glob("x*") if not each.stat().st_size} == set(others)
    with pytest.raises(CommandError, match="no figure is made"):
        draw(str(tmp_path / "x.png"), content | {"rows": []})
    assert len(list(tmp_path.glob("x*.png"))) > len(others)


def test_figures_are_files_with_their_numbers(tmp_path):
    pytest.importorskip("matplotlib")
    path = exchanges(tmp_path, "a.json", 0.5)
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in ("01-mine.csv", "02-mine.png"):
        (folder / name).write_text("")
    page(tmp_path, "--figures", str(folder))
    assert {each.name for each in folder.glob("*mine*")} == {"01-mine.csv", "02-mine.png"}
    (folder / "02-mine.png").unlink()
    (folder / "figures.csv").write_text("file,figure\n01-mine.csv,of a run before\n")
    page(tmp_path, "--figures", str(folder))
    assert not list(folder.glob("*mine*"))
    drawn = plots(Result("a.json", json.loads(path.read_text())))
    assert len(list(folder.glob("*.png"))) == len(drawn) > 1
    first = sorted(folder.glob("01-*.csv"))[0]
    with open(first, newline="") as file:
        heads, *rows = list(csv.reader(file))
    assert heads == ["bytes", "mpi", "rma-fence", "rma-lock"]
    assert [float(row[0]) for row in rows] == list(map(float, SIZES))
    with open(folder / "claims.csv", newline="") as file:
        assert {row["claim"] for row in csv.DictReader(file)} == {c.words for c in claims.CLAIMS}


def sized(lines, sizes=(8, 64)):
    return [
        Row({"bytes": byte_count(size), "operation": "Bcast", "method": f"m{k}"}, [1.0] * 7, None,
            size, {"mpi": [2.0] * 7})
        for k in range(lines) for size in sizes
    ]  # fmt: skip


@pytest.mark.parametrize(("command", "rows", "title", "names"), [
    ("bench collectives", sized(MOST_LINES + 2), "Over the blocking call (2 more lines)",
     MOST_LINES),
    ("hpccg", [Row({"case": f"c{k}", "method": "mpi"}, [1.0] * 7, parts={"a": [1.0] * 7})
               for k in range(MOST_PANELS + 3)],
     "Where the time goes: case c3 (3 more before it)", 1),
    ("bench halo", [Row({"grid": f"g{k}", "method": method}, [1.0] * 7, against={
        "mpi": [1.0] * 7}) for k in range(MOST_BARS // 2 + 4) for method in ("p2p", "auto")],
     "Time over that of mpi (4 more cases)", MOST_BARS // 2),
])  # fmt: skip
def test_a_figure_says_what_it_leaves_out(command, rows, title, names):
    first = plots(Result("a.json", written(rows, command)))[0]
    assert first.title == title
    assert len(first.lines or first.bars) == names


@pytest.mark.parametrize("sizes", [(8,), (8, 64)])
@pytest.mark.parametrize("command", ["bench collectives", "bench halo"])
def test_wrong_rows_are_marked_in_a_figure(command, sizes):
    rows = sized(2, sizes)
    rows[-1].verdict = Verdict(1.0, 0.0)
    heads, lines = plots(Result("a.json", written(rows, command)))[0].table()
    assert {"m0", "m1 (wrong)"} <= {*heads, *(line[0] for line in lines)}


@pytest.mark.parametrize(("medians", "words"), [
    ((0.5,), "A set-up has paid after 2 iterations."),
    ((0.5, 3.0), "A set-up has paid after 2 iterations; never in 1 of 2 rows."),
    ((2.0, 3.0), "A set-up has paid never in 2 of 2 rows."),
])  # fmt: skip
def test_whether_a_set_up_has_paid_is_said_where_it_never_does(medians, words):
    rows = [Row({"bytes": f"{k}", "method": "auto"}, [time] * 7, 1.0, 8, {"mpi": [1.0] * 7})
            for k, time in enumerate(medians)]  # fmt: skip
    assert outcome(Result("a.json", written(rows))).endswith(words)


def test_results_of_two_machines_are_refused_or_grouped(tmp_path):
    exchanges(tmp_path, "a.json", 0.5)
    content = json.loads(exchanges(tmp_path, "b.json", 0.5).read_text())
    content["machine"]["processor"] = "B"
    (tmp_path / "b.json").write_text(json.dumps(content))
    finished = commands.onesided("report", str(tmp_path), "-o", str(tmp_path / "r.html"))
    assert finished.code == 2
    assert "2 different machines" in finished.sentences[0]
    assert page(tmp_path, "--mixed")[0].count("<h2>Machine and MPI</h2>") == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "broken JSON"), ("[" * 100000, "broken JSON"),
        ("", "no results"), ("3", "no results"),
        ('{"schema": 9, "command": "x", "settings": {}, "versions": {}}', "version 9"),
        ('{"schema": 2, "command": "x", "settings": {}, "versions": {}, "rows": 3}', "rows"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_one_sentence(text, words, tmp_path):
    (tmp_path / "a.json").write_text(text)
    finished = commands.onesided("report", str(tmp_path), "-o", str(tmp_path / "r.html"))
    assert finished.code == 2, finished
    assert len(finished.sentences) == 1
    assert words in finished.sentences[0]


def test_two_runs_are_compared(tmp_path):
    old, new = exchanges(tmp_path, "a.json", 0.5), exchanges(tmp_path, "b.json", 0.9)
    finished = commands.onesided("bench", "compare", str(old), str(new))
    assert finished.code == 1, finished
    assert len(re.findall("SLOWER", finished.out)) == 2 * len(SIZES)
    assert commands.onesided("bench", "compare", str(new), str(old)).code == 0
    assert "ran as" not in finished.out
    worse = json.loads(old.read_text())
    worse["rows"][1]["verified"] = False
    wrong, less = tmp_path / "wrong.json", tmp_path / "less.json"
    wrong.write_text(json.dumps(worse))
    less.write_text(json.dumps(worse | {"rows": worse["rows"][2:]}))
    told = commands.onesided("bench", "compare", str(old), str(wrong))
    assert (told.code, told.out.count("WRONG")) == (1, 1), told
    told = commands.onesided("bench", "compare", str(wrong), str(old))  # no time to compare with
    assert (told.code, told.out.count("rma-fence")) == (0, len(SIZES)), told
    assert "wrong in wrong.json: 2 1 KiB rma-fence plain\n" in told.out
    whole = tmp_path / "whole.json"
    of_all = {"verified": False, "verdicts": {"the sum": {"verified": False}}}
    whole.write_text(json.dumps(json.loads(old.read_text()) | of_all))
    told = commands.onesided("bench", "compare", str(old), str(whole))
    assert (told.code, "wrong in whole.json: the sum\n" in told.out) == (1, True), told
    told = commands.onesided("bench", "compare", str(old), str(less))
    assert (told.code, told.out.count("not in less.json: ")) == (0, 2), told
    more = exchanges(tmp_path, "c.json", 0.5, ranks=4)
    content = json.loads(more.read_text())
    content["rows"] = json.loads(old.read_text())["rows"]
    more.write_text(json.dumps(content))
    told = commands.onesided("bench", "compare", str(old), str(more)).out
    assert "ran as: 2 ranks on 1 node in a.json, 4 ranks on 1 node in c.json" in told


def test_results_are_held_against_targets(tmp_path):
    rows = [Row({"bytes": "1 KiB", "method": "auto", "memory": "slots"}, [ratio] * 7, 1e-4, 1024,
                {"mpi": [1.0] * 7}) for ratio in (0.01, 0.9, 0.01)]  # fmt: skip
    rows[2].verdict = Verdict(1.0, 0.0)  # fast, and wrong
    rows.append(Row(rows[0].labels, reason="no such window"))
    opponent = Row({"bytes": "1 KiB", "method": "mpi", "memory": "plain"}, reason="no such call")
    alone = Row(rows[0].labels, [0.01] * 7, 1e-4, 1024)
    wrong = Row(opponent.labels, [1.0] * 7, verdict=Verdict(1.0, 0.0))
    every = [*([row] for row in rows), [alone, opponent], [alone, wrong]]
    for name, each in zip("abcdef", every, strict=True):
        folder = tmp_path / name
        folder.mkdir()
        Report("bench rounds", {}, {}, each).finish(
            MPI.COMM_SELF, Options(json=str(folder / "r.json"))
        )
        content = json.loads((folder / "r.json").read_text())
        content["machine"]["ranks"] = 2
        (folder / "r.json").write_text(json.dumps(content))
    good, *others, unopposed = (
        commands.onesided("bench", "check", str(tmp_path / name)) for name in "abcdef"
    )
    assert good.code == 0, good
    assert unopposed.code == 0, unopposed  # nobody can be faster than wrong data
    assert "opponent WRONG" in unopposed.out
    assert "0 of 1 targets reached" in unopposed.out
    wanted = ("MISSED", "MISSED", "not measured", "not measured")
    for other, told in zip(others, wanted, strict=True):
        assert other.code == 1, other
        assert told in other.out
        assert "0 of 1 targets reached" in other.out
