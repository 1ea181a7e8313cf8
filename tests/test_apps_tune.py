"""``onesided tune`` as a person runs it."""

from __future__ import annotations

import json

import commands
import pytest

from onesided.collectives.tuning.decisions import VARIABLE, read_records

pytestmark = pytest.mark.one_mpi


@pytest.fixture
def path(tmp_path, monkeypatch):
    chosen = tmp_path / "tuning.json"
    monkeypatch.setenv(VARIABLE, str(chosen))
    return chosen


def test_what_is_measured_is_shown_and_forgotten(path, tmp_path):
    result = tmp_path / "result.json"
    done = commands.onesided("tune", "--sizes", "1K", "--json", str(result), ranks=2)
    assert done.code == 0, done
    (known,) = read_records(path).values()
    assert len(known) == 3  # slots, window memory, a broadcast
    assert set(json.loads(result.read_text())["records"]) == set(known)
    shown = commands.onesided("tune", "--show")
    assert shown.code == 0, shown
    assert "3 situations" in shown.out
    assert all(name in shown.out for record in known.values() for name in record.costs)
    gone = commands.onesided("tune", "--show", "--afresh")
    assert gone.code == 0, gone
    assert "0 situations" in gone.out
    assert not path.exists()


def test_without_a_file_there_is_nothing_to_show(monkeypatch):
    monkeypatch.setenv(VARIABLE, "off")
    done = commands.onesided("tune", "--show")
    assert done.code == 2, done
    assert VARIABLE in "".join(done.sentences)


def test_it_is_about_auto(path):
    done = commands.onesided("tune", "--comm", "p2p")
    assert done.code == 2, done
    assert "p2p" in "".join(done.sentences)
