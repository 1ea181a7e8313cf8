"""``onesided report`` and what it must refuse, leave out, or show without being misled."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import envelopes
import pytest
from envelopes import options, page, parsed

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.report import SCHEMA, Row
from onesided.apps.report.command import make

NASTY = "<script>alert('&\"')</script>\x00\x1b\ud800 <b>"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good results."""
    folder = tmp_path_factory.mktemp("results")
    envelopes.world(folder, True)
    return folder


def test_everything_is_escaped(tmp_path):
    rows = [Row({"bytes": "1 KiB", "method": NASTY, NASTY: "x"}, [1e-3], 1e-3, 1024)]
    rows += [Row({"bytes": "2 KiB", "method": NASTY, NASTY: NASTY}, [1e-3], nbytes=2048)]
    for number, command in enumerate(("bench alltoallv", "bench broadcast", NASTY)):
        path = envelopes.write(tmp_path / f"{number}.json", command, rows, system=NASTY)
        edited = {"remarks": [NASTY], NASTY: [{NASTY: NASTY}], "verdicts": {NASTY: {NASTY: 1}}}
        envelopes.edit(path, settings={NASTY: NASTY}, **edited)
    (tmp_path / "<i>.json").write_text('"foreign"')
    text = page(tmp_path)
    root = parsed(text)
    assert not list(root.iter("script"))
    assert not list(root.iter("b"))
    assert "alert('&\"')" in "".join(root.itertext())


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("none", None, "no results in this folder"),
        ("foreign", b'{"a": 1}', r"no results in this folder but a.json \(no result\)"),
        ("broken", b'{"command": "bench', "a.json: broken JSON, line 1"),
        ("empty", b"", "no results .* a.json .empty, its command did not come to its end"),
        ("bytes", b"\xff\xfe{}", "a.json: no text in UTF-8"),
        ("deep", b"[" * 100_000, "a.json: broken JSON"),
    ],
)
def test_a_folder_without_results_is_an_error_that_names_it(tmp_path, name, content, told):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(CommandError, match=told):
        make(options(tmp_path))
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema": SCHEMA + 1}, f"version {SCHEMA + 1} .* reads version {SCHEMA}"),
        ({"schema": None}, "no version"),
        ({"schema": True}, "version True"),
        ({"rows": {}}, "'rows' is no list"),
        ({"rows": [1]}, "a row is no object"),
        ({"machine": []}, "'machine' is no object"),
        ({"pattern": 3}, "'pattern' is no object"),
    ],
)
def test_a_file_of_another_version_is_refused(tmp_path, changes, told):
    envelopes.edit(envelopes.write(tmp_path / "a.json", "spmv", []), **changes)
    with pytest.raises(CommandError, match=f"a.json: .*{told}"):
        make(options(tmp_path))


def test_a_file_of_something_else_is_named(tmp_path):
    envelopes.write(tmp_path / "a.json", "spmv", [])
    (tmp_path / "other.json").write_text("[1, 2]")
    (tmp_path / "x.json").write_text("\n")
    told = make(options(tmp_path))
    assert "left out: other.json (no result)" in told
    assert "left out: x.json (empty, its command did not come to its end)" in told
    assert "Left out: other.json (no result), x.json (empty," in page(tmp_path)


@pytest.mark.parametrize("what", ["processor", "system", "mpi library"])
def test_results_of_different_machines_are_not_mixed_unasked(tmp_path, what):
    for name, ratio in (("a", 0.5), ("b", 1.5)):
        rows = envelopes.exchanges({"rma-fence": dict.fromkeys(envelopes.SIZES, ratio)})
        path = envelopes.write(tmp_path / f"{name}.json", "bench alltoallv", list(rows))
        content = json.loads(path.read_text())
        part = "versions" if what == "mpi library" else "machine"
        envelopes.edit(path, **{part: content[part] | {what: f"that of {name}"}})
    with pytest.raises(CommandError, match=r"2 different machines or MPIs .*a\.json.*b\.json"):
        make(options(tmp_path))
    told = make(options(tmp_path, mixed=True))
    assert sum("claims of papers" in line for line in told) == 2
    text = page(tmp_path, mixed=True)
    assert "2 groups" in text
    # the same claim has another verdict in each
    assert re.search(r"0\.50 at 32 KiB.*?holds here.*?1\.50 at 32 KiB.*?does not hold here", text)


def test_what_tells_no_machine_may_be_mixed(tmp_path):
    envelopes.edit(envelopes.write(tmp_path / "a.json", "spmv", []), machine={})
    page(tmp_path)
    envelopes.write(tmp_path / "b.json", "spmv", [])
    assert "no measurement" in page(tmp_path)


def test_other_places_are_errors(tmp_path):
    file = envelopes.write(tmp_path / "a.json", "spmv", [])
    for asked in (
        options(tmp_path / "none"),
        options(file),
        options(tmp_path, output=str(tmp_path / "none" / "r.html")),
        options(tmp_path, output=str(tmp_path)),
        options(tmp_path, figures=str(file)),
    ):
        with pytest.raises(CommandError):
            make(asked)


MUTANTS = 60
WRONG = (None, True, -1, 0, 1.5, float("nan"), 10**400, "", "x", [], [1], ["a"], {}, {"a": [[1]]})


def places(value: object, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where something stands in a JSON value, of long lists the beginning only."""
    found = [above] if above else []
    pairs = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        pairs = enumerate(value[:6])
    return found + [place for key, each in pairs for place in places(each, (*above, key))]


@pytest.mark.parametrize("number", range(4))
def test_wrong_values_anywhere_are_left_out_or_refused(results, tmp_path, number):
    """A file may have been written by hand, or by another program."""
    chance = random.Random(number)
    names = ["broadcasts-8", "exchanges-28", "partitions", "patterns"]
    accepted = 0
    for _ in range(MUTANTS):
        name = chance.choice(names)
        content = json.loads((results / f"{name}.json").read_text())
        content["rows"] = content["rows"][:30]
        for _ in range(chance.choice([1, 3])):
            *above, last = chance.choice(places(content))
            inner = content
            for key in above:
                inner = inner[key]
            inner[last] = json.loads(json.dumps(chance.choice(WRONG)))
        (tmp_path / "a.json").write_text(json.dumps(content))
        try:
            parsed(page(tmp_path))
        except CommandError:
            continue
        accepted += 1
    assert accepted > MUTANTS / 3
