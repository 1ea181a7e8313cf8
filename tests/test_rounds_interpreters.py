"""The compiled interpreter of rounds against the one in Python, step by step; no MPI."""

from __future__ import annotations

import inspect
from collections import Counter

import numpy as np
import pytest
from rounds_worlds import World, compare, difference, drawn

from onesided.collectives import steps
from onesided.collectives.program import PythonRounds
from onesided.collectives.steps import _core

pytestmark = pytest.mark.skipif(_core is None, reason="no compiled core is installed")

EACH = 25


def run(chunk):
    seen: Counter[str] = Counter()
    for seed in range(chunk * EACH, (chunk + 1) * EACH):
        seen.update(compare(seed))
    return seen


@pytest.mark.parametrize("chunk", range(4, 12))
def test_random_rounds_are_the_same_by_both_interpreters(chunk):
    assert run(chunk)["start None"] > EACH


@pytest.mark.full
@pytest.mark.parametrize("chunk", range(12, 400))
def test_many_random_rounds_are_the_same_by_both_interpreters(chunk):
    assert run(chunk)["start None"] > EACH


def test_random_rounds_visit_everything():
    """What the verbs have come to, and which hooks and steps there were."""
    seen = sum((run(chunk) for chunk in range(4)), Counter())
    rare = {"start ArmedError", "test ArmedError", "wait ArmedError", "wait RequestError",
            "test RequestError", "test StuckError", "wait slot 2", "advance True",
            "grant None", "_delist"}
    often = {"start None", "start RequestError", "wait slot 0", "wait slot 1", "wait StuckError",
             "test True", "test False", "advance False", "open None", "fill None",
             "call", "breaks", "_enlist", "_drive", "_fill", "_before_start", "_after_start",
             "_before_wait", "_after_wait", "copy", "gather", "reduce", "raise", "await"}
    assert not {what for what in rare if not seen[what]}
    assert not {what for what in often if seen[what] < 10}


@pytest.mark.parametrize("place", ["memory", "counter", "state"])
def test_a_difference_is_seen(place):
    worlds = [World(drawn(3), compiled) for compiled in (True, False)]
    assert difference(*worlds) is None
    if place == "memory":
        worlds[0].arenas[9][8] ^= 1
    elif place == "counter":
        worlds[0].cells[5, 0] += 1
    else:
        worlds[1].requests[0]._open(3)
    assert difference(*worlds) is not None


@pytest.mark.parametrize(
    ("plans", "slots"), [(0, 0), (1, 0), (0, 1), (3, 1), (3, 2), (2, 3)]
)
@pytest.mark.parametrize("kind", [PythonRounds, getattr(_core, "Rounds", None)])
def test_programs_that_do_not_fit_their_slots_are_refused(kind, plans, slots):
    with pytest.raises(ValueError, match="plans for"):
        kind()._load([[]] * plans, (None,) * slots, None, None)


@pytest.mark.parametrize("kind", [PythonRounds, getattr(_core, "Rounds", None)])
def test_boxes_of_more_axes_than_the_core_has_are_copied(kind):
    shape = (2,) * 9
    source = np.arange(3**len(shape), dtype=np.int64).reshape((3,) * len(shape))
    target = np.zeros_like(source)
    box = (slice(0, 2),) * len(shape)
    step = steps.copy(target[box], source[tuple(reversed(box))])
    rounds = kind()
    given = [step] if kind is PythonRounds else steps.lowered(step)
    rounds._load([[given]], ("received",), None, step)
    rounds.Start()
    assert rounds.Wait() == "received"
    assert np.array_equal(target[box], source[box])
    assert target.sum() == source[box].sum()


@pytest.mark.parametrize(("to", "out"), [("i8", "f8"), ("f4", "u4"), (">f8", "<f8"), ("V8", "c8")])
def test_a_copy_between_types_of_one_size_keeps_the_bytes(to, out):
    source = np.arange(1, 49, dtype=np.uint8).view(out)
    for part in (slice(None), slice(None, None, 2)):
        target = np.zeros(source.size, to)
        rounds = PythonRounds()
        rounds._load([[[steps.copy(target[part], source[part])]]], (None,), None, None)
        rounds.Start()
        assert target[part].tobytes() == source[part].tobytes()


@pytest.mark.parametrize("verb", ["Start", "Wait", "Test"])
def test_both_tell_the_same_about_their_verbs(verb):
    if _core is None:
        pytest.skip("nothing is compiled")
    assert inspect.getdoc(getattr(_core.Rounds, verb)) == inspect.getdoc(
        getattr(PythonRounds, verb)
    )
    assert [*inspect.signature(getattr(_core.Rounds, verb)).parameters] == [
        *inspect.signature(getattr(PythonRounds, verb)).parameters
    ]
