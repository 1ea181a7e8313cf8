"""What ``auto`` keeps and decides by; no MPI."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from onesided.collectives import Method, MethodError, methods, register, registry
from onesided.collectives.errors import PatternError
from onesided.collectives.hardware import named_in
from onesided.collectives.hints import Hints
from onesided.collectives.registry import VARIABLE as METHOD
from onesided.collectives.registry import find, overruled, wanted
from onesided.collectives.tuning.decisions import (
    VARIABLE,
    Cost,
    Record,
    Tuning,
    open_tuning,
    read_records,
)
from onesided.collectives.tuning.situations import BY_NODE, FAR_ONLY, PLAIN, usual_order

RECORD = Record(
    {"p2p": Cost(0.001, 5e-6), "rma-notify": Cost(0.004, 2e-6)}, {"x": "not here"}
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
    assert not RECORD.covers(["x"])  # none of these works, it says
    assert Record({}, {}).ranking(["b", "a"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("far", "window", "block", "first"),
    [
        (False, True, 0, "rma-notify"),
        (False, True, 10 * PLAIN, "rma-notify"),
        (False, False, PLAIN, "rma-notify"),
        (False, False, PLAIN + 1, "p2p"),
        (True, False, PLAIN + 1, "rma-p2p"),
        (True, True, 0, "rma-p2p"),
    ],
)
def test_what_usually_wins(far, window, block, first):
    names = usual_order(far, window, block)
    assert names[0] == first
    assert usual_order(far, window, block, far)[0] == (BY_NODE if far else first)
    assert len(set(names)) == len(names)
    known = methods()
    assert all(known[name].candidate and known[name].any_order for name in names)
    assert (FAR_ONLY in names) == far


def test_what_is_learnt_is_there_for_the_next_process(path):
    """A process stays with what it knows, and the file has the last measurement of anybody: a long
    job that learns one thing does not write back what another has measured anew."""
    other = Record({"p2p": Cost(0.1, 0.2)}, {})
    long, short, early = Tuning(path), Tuning(path), Tuning(path)
    assert early.recall("m", "a") is None
    long.learn("m", "a", RECORD)
    assert short.recall("m", "a") == RECORD
    assert Tuning(path).recall("another machine", "a") is None
    short.learn("m", "a", other)
    long.learn("m", "b", RECORD)
    early.learn("n", "c", RECORD)
    assert read_records(path) == {"m": {"a": other, "b": RECORD}, "n": {"c": RECORD}}
    assert long.recall("m", "a") == RECORD
    assert Tuning(path).recall("m", "a") == other
    assert os.listdir(path.parent) == ["tuning.json"]  # no temporary file is left


def test_what_ran_out_is_known_to_this_process_alone(path):
    tuning, short = Tuning(path), Record(RECORD.costs, {}, {"rma-p2p": "no room for 9 bytes"})
    tuning.learn("m", "a", short)
    assert tuning.recall("m", "a").covers(["p2p", "rma-notify", "rma-p2p"])
    assert tuning.recall("m", "a").ranking(["rma-p2p", "p2p"]) == ["p2p", "rma-p2p"]
    assert not path.exists()


def test_without_a_file_the_process_still_knows():
    tuning = Tuning(None)
    tuning.learn("m", "a", RECORD)
    assert tuning.recall("m", "a") == RECORD
    tuning.forget()
    assert tuning.recall("m", "a") is None


def content_of(seconds, **more):
    """A tuning file with one record."""
    record = {"seconds": {"p2p": seconds}, "refused": {}} | more
    records = {"m": {"s": record}}
    return json.dumps({"format": "onesided tuning", "version": 3, "records": records})


def test_the_form_of_a_file(path):
    path.parent.mkdir()
    path.write_text(content_of([3, 2]))
    assert read_records(path) == {"m": {"s": Record({"p2p": Cost(3, 2)}, {})}}


BROKEN = [
    "",
    "no json",
    "[]",
    '{"format": "something else"}',
    '{"format": "onesided tuning", "version": 3}',
    '{"format": "onesided tuning", "version": 3, "records": []}',
    '{"format": "onesided tuning", "version": 3, "records": {"m": {"s": {}}}}',
    content_of([1]),
    content_of([1, 1, 1]),
    content_of([1, -1]),
    content_of([1, math.nan]),
    content_of([1, 10**400]),
    "[" * 100_000,
    '{"format": "onesided tuning", "version": 3, "records": ' + "[" * 100_000,
    content_of([1, 1], refused=[]),
    "\udcff\udcfe",  # bytes that are no text
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_file_that_is_not_ours_is_refused_and_stays_as_it_is(path, content):
    path.parent.mkdir()
    before = content.encode(errors="surrogateescape")
    path.write_bytes(before)
    with pytest.raises(PatternError, match="no tuning file"):
        read_records(path)
    tuning = Tuning(path)
    with pytest.warns(RuntimeWarning, match=r"no tuning file.*nothing is kept"):
        assert tuning.recall("m", "s") is None
    tuning.learn("m", "s", RECORD)
    assert tuning.recall("m", "s") == RECORD  # in this process
    with pytest.raises(PatternError, match="no tuning file"):
        tuning.forget()
    assert path.read_bytes() == before


def test_a_file_that_is_replaced_meanwhile_is_not_overwritten(path):
    tuning = Tuning(path)
    tuning.learn("m", "s", RECORD)
    path.write_text("my notes")
    with pytest.warns(RuntimeWarning, match="no tuning file"):
        tuning.learn("m", "t", RECORD)
    assert path.read_text() == "my notes"


@pytest.mark.parametrize("version", [2, 4])
def test_a_file_of_a_newer_version_stays_and_an_older_one_is_replaced(path, version):
    path.parent.mkdir()
    content = {"format": "onesided tuning", "version": version, "records": {"another": "form"}}
    path.write_text(json.dumps(content))
    tuning = Tuning(path)
    with (
        pytest.warns(RuntimeWarning, match=r"version 4, not 3.*nothing is kept")
        if version == 4 else contextlib.nullcontext()
    ):
        assert tuning.recall("m", "s") is None
    tuning.learn("m", "s", RECORD)
    assert tuning.recall("m", "s") == RECORD  # in this process
    if version == 2:
        assert read_records(path) == {"m": {"s": RECORD}}
        tuning.forget()
        assert not path.exists()
    else:
        with pytest.raises(PatternError, match="version 4"):
            tuning.forget()
        assert json.loads(path.read_text()) == content


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    tuning = Tuning(tmp_path / "file" / "tuning.json")
    with pytest.warns(RuntimeWarning, match="is not kept"):
        tuning.learn("m", "s", RECORD)
    assert tuning.recall("m", "s") == RECORD


def test_the_file_is_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "off")
    assert open_tuning().path is None
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.json"))
    assert open_tuning().path == tmp_path / "mine.json"
    assert open_tuning() is open_tuning()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_tuning().path == tmp_path / "onesided" / "tuning.json"


ARM = """processor\t: 0
BogoMIPS\t: 2000.00
CPU implementer\t: 0x41
CPU part\t: 0xd4f

processor\t: 1
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


def test_processors_have_names_on_arm_too():
    assert named_in(ARM) == "ARM implementer 0x41, part 0xd40 and 0xd4f"
    assert named_in("processor: 0\nmodel name\t: Some CPU @ 2 GHz \n") == "Some CPU @ 2 GHz"
    assert named_in("") == named_in("CPU part\t: 0xd4f\n") == ""


def test_the_environment_overrules_what_auto_would_choose(monkeypatch):
    monkeypatch.setenv(METHOD, " exchange = p2p, reduction=rma-p2p ")
    assert overruled() == {"exchange": "p2p", "reduction": "rma-p2p"}
    assert wanted("auto").name == "p2p"
    assert wanted("mpi").name == "mpi"  # what the program names stays
    assert wanted("auto", "broadcast").name == "auto"
    monkeypatch.setenv(METHOD, "exchange=p3p")
    with pytest.raises(MethodError, match=r"no method 'p3p' of exchange \(did you mean 'p2p'"):
        wanted("auto")
    monkeypatch.setenv(METHOD, "exchnage=p2p")
    with pytest.raises(MethodError, match="did you mean 'exchange'"):
        wanted("auto")
    monkeypatch.setenv(METHOD, "p2p")
    with pytest.raises(MethodError, match="OPERATION=METHOD"):
        wanted("auto")


def test_a_misspelled_name_suggests_the_right_one():
    with pytest.raises(MethodError, match="did you mean 'rma-notify'"):
        find("rma-notfy")
    with pytest.raises(PatternError, match="did you mean 'estimate'"):
        Hints.of({"effort": "estimat"})
    with pytest.warns(RuntimeWarning, match="'expected_iteration' is not known .did you mean"):
        assert Hints.of({"expected_iteration": "3"}) == Hints()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Hints.of({"no_locks": "true", "mpi_assert_no_any_tag": "true"}) == Hints()


class Broken:
    """An entry point that cannot be loaded."""

    value = "nowhere:add"

    def load(self):
        raise ImportError("nowhere is not there")


class Works(Broken):
    def load(self):
        time.sleep(0.05)  # other threads ask meanwhile
        return lambda: register(Method("from outside", "nowhere:Nothing", True, False, ""))


def test_a_plug_in_that_is_broken_disables_its_own_methods_alone(monkeypatch):
    known = {kind: dict(table) for kind, table in registry._METHODS.items()}
    monkeypatch.setattr(registry, "_METHODS", known)
    monkeypatch.setattr(registry, "entry_points", lambda group: [Broken(), Works()])
    monkeypatch.setattr(registry, "_entry_points", None)
    with (
        pytest.warns(RuntimeWarning, match="nowhere:add are not there: ImportError") as warned,
        ThreadPoolExecutor(3) as threads,
    ):  # fmt: skip
        assert all("from outside" in known for known in threads.map(methods, ["exchange"] * 3))
    assert len(warned) == 1
    assert find("p2p").name == "p2p"
