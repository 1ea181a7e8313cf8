"""What ``auto`` keeps and decides by; no MPI."""

from __future__ import annotations

import json
import math
import os

import pytest

from onesided.collectives import methods
from onesided.collectives.errors import PatternError
from onesided.collectives.tuning.auto import FAR_ONLY, PLAIN, usual_order
from onesided.collectives.tuning.decisions import (
    VARIABLE,
    Cost,
    OtherVersionError,
    Record,
    Tuning,
    open_tuning,
    read_records,
)

RECORD = Record(
    {"p2p": Cost(0.001, 5e-6), "rma-notify": Cost(0.004, 2e-6, 1e-6)}, {"x": "not here"}, 2
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "tuning.json"


def test_the_least_cost_depends_on_how_often_it_is_paid():
    names = ["rma-notify", "p2p", "x", "never tried"]
    assert RECORD.ranking(names) == ["rma-notify", "p2p", "never tried"]
    assert RECORD.ranking(names, 999)[0] == "p2p"  # 0.001 + 999 * 5e-6 < 0.004 + 999 * 2e-6
    assert RECORD.ranking(names, 1001)[0] == "rma-notify"
    assert RECORD.covers(["p2p", "x"])
    assert not RECORD.covers(names)
    assert Record({}, {}).ranking(["b", "a"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("far", "window", "received", "first"),
    [
        (False, True, 0, "rma-notify"),
        (False, True, 10 * PLAIN, "rma-notify"),
        (False, False, PLAIN, "rma-notify"),
        (False, False, PLAIN + 1, "p2p"),
        (True, False, PLAIN + 1, "rma-p2p"),
        (True, True, 0, "rma-p2p"),
    ],
)
def test_what_usually_wins(far, window, received, first):
    names = usual_order(far, window, received)
    assert names[0] == first
    assert len(set(names)) == len(names)
    known = methods()
    assert all(known[name].candidate and known[name].any_order for name in names)
    assert (FAR_ONLY in names) == far


def test_what_is_learnt_is_there_for_the_next_process(path):
    Tuning(path).learn("this machine", "1 KiB", RECORD)
    again = Tuning(path)
    assert again.recall("this machine", "1 KiB") == RECORD
    assert again.recall("this machine", "2 KiB") is None
    assert again.recall("another machine", "1 KiB") is None
    assert os.listdir(path.parent) == ["tuning.json"]  # no temporary file is left


def test_what_is_doubted_is_not_known_but_how_often_it_was_measured(path):
    tuning = Tuning(path)
    tuning.learn("m", "a", RECORD)
    tuning.learn("m", "b", RECORD)
    tuning.doubt("m", "a")
    for known in (tuning, Tuning(path)):  # in this process, and in the next one
        doubted = known.recall("m", "a")
        assert not doubted.covers(RECORD.costs)
        assert not doubted.costs
        assert doubted.refused == RECORD.refused
        assert doubted.times == RECORD.times
        assert known.recall("m", "b") == RECORD
    tuning.doubt("m", "c")  # of which nothing is known
    tuning.doubt("n", "a")
    assert {m: set(known) for m, known in Tuning(path).records().items()} == {"m": {"a", "b"}}


def test_a_second_doubt_changes_nothing(path, monkeypatch):
    tuning = Tuning(path)
    tuning.learn("m", "a", RECORD)
    tuning.doubt("m", "a")
    monkeypatch.setattr(tuning, "learn", lambda *words: pytest.fail(f"learnt {words}"))
    tuning.doubt("m", "a")


def test_two_processes_that_learn_keep_both(path):
    first, second = Tuning(path), Tuning(path)
    assert first.recall("m", "a") is second.recall("m", "a") is None
    first.learn("m", "a", RECORD)
    second.learn("m", "b", RECORD)
    first.learn("n", "c", RECORD)
    assert {m: set(known) for m, known in read_records(path).items()} == {
        "m": {"a", "b"}, "n": {"c"}
    }


def content_of(seconds, **more):
    """A tuning file with one record."""
    record = {"seconds": {"p2p": seconds}, "refused": {}, "times": 1} | more
    records = {"m": {"s": record}}
    return json.dumps({"format": "onesided tuning", "version": 2, "records": records})


def test_the_form_of_a_file(path):
    path.parent.mkdir()
    path.write_text(content_of([3, 2, 1], times=4))
    assert read_records(path) == {"m": {"s": Record({"p2p": Cost(3, 2, 1)}, {}, 4)}}


BROKEN = [
    "",
    "no json",
    "[]",
    '{"format": "something else"}',
    '{"format": "onesided tuning", "version": 2}',
    '{"format": "onesided tuning", "version": 2, "records": []}',
    '{"format": "onesided tuning", "version": 2, "records": {"m": {"s": {}}}}',
    content_of([1]),
    content_of([1, 1]),
    content_of([1, -1, 1]),
    content_of([1, math.nan, 1]),
    content_of([1, 1, -1]),
    content_of([1, 1, math.nan]),
    content_of([1, 1, 1], times="often"),
    content_of([1, 1, 1], times=None),
    content_of([1, 1, 1], refused=[]),
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_ignored_with_a_warning_and_then_replaced(path, content):
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(PatternError, match="no tuning file"):
        read_records(path)
    tuning = Tuning(path)
    with pytest.warns(RuntimeWarning, match=r"no tuning file.*ignored"):
        assert tuning.recall("m", "s") is None
    with pytest.warns(RuntimeWarning, match="no tuning file"):
        tuning.learn("m", "s", RECORD)
    assert read_records(path) == {"m": {"s": RECORD}}


def test_bytes_that_are_no_text_are_a_broken_file(path):
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.warns(RuntimeWarning, match="ignored"):
        assert Tuning(path).recall("m", "s") is None


def test_a_file_of_another_version_stays_as_it_is(path):
    path.parent.mkdir()
    content = json.dumps({"format": "onesided tuning", "version": 3, "records": {"new": "form"}})
    path.write_text(content)
    with pytest.raises(OtherVersionError):
        read_records(path)
    tuning = Tuning(path)
    with pytest.warns(RuntimeWarning, match=r"version 3, not 2.*ignored"):
        assert tuning.recall("m", "s") is None
    with pytest.warns(RuntimeWarning, match="version 3"):
        tuning.learn("m", "s", RECORD)
    assert tuning.recall("m", "s") == RECORD  # in this process
    assert path.read_text() == content
    tuning.forget()
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    tuning = Tuning(tmp_path / "file" / "tuning.json")
    with pytest.warns(RuntimeWarning, match="is not kept"):
        tuning.learn("m", "s", RECORD)
    assert tuning.recall("m", "s") == RECORD


def test_the_file_is_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "off")
    assert open_tuning() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.json"))
    assert open_tuning().path == tmp_path / "mine.json"
    assert open_tuning() is open_tuning()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_tuning().path == tmp_path / "onesided" / "tuning.json"
