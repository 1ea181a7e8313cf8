"""Which kernel is chosen for a task, and what is remembered of it. No MPI."""

from __future__ import annotations

import json
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import thread_time

import numpy as np
import pytest
import scipy.fft

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.kernels import registry, selection, wisdom
from onesided.pencilfft.kernels.protocol import Layout, Task
from onesided.pencilfft.kernels.selection import Selection, family_of
from onesided.pencilfft.kernels.wisdom import Wisdom, open_wisdom

SLOW = 3e-3


def task_on(source, target=None, kind="c2c", axis=0, scale=0, **more):
    """A task on these arrays; in place without a target."""
    target_of = source if target is None else target
    options = {"forward": True, "orthogonal": False, **more}
    return Task(kind, axis, scale=scale, source=Layout.of(source), target=Layout.of(target_of),
                in_place=target is None, **options)  # fmt: skip


class Fake:
    """A kernel that needs at least this processor time."""

    def __init__(self, name, seconds, kinds=("c2c", "r2c", "c2r")):
        self.name, self.kinds, self.planned, self.seconds = name, kinds, [], seconds

    def plan(self, task, effort):
        if task.kind not in self.kinds:
            return None
        self.planned.append((task, effort))

        def run(source, target):
            end = thread_time() + self.seconds
            while thread_time() < end:
                pass
            target[...] = scipy.fft.fft(source, axis=task.axis)

        return run


@pytest.fixture
def fakes(monkeypatch):
    """Replaces the kernels of "auto" by those given."""

    def use(*kernels):
        found = {kernel.name: kernel for kernel in kernels}
        monkeypatch.setattr(selection, "installed", lambda: list(found))
        monkeypatch.setattr(selection, "load_kernel", found.__getitem__)

    return use


@pytest.fixture
def array():
    return np.zeros((6, 4, 5), complex)


def test_the_fastest_kernel_is_chosen(fakes, array):
    slow, fast = Fake("slow", SLOW), Fake("fast", 0)
    fakes(slow, fast)
    chosen = Selection("auto", "measure")
    task = task_on(array, axis=2)
    run = chosen.run_for(task)
    assert chosen.choices == {task: "fast"}
    assert chosen.name == "auto (fast)"
    array[...] = values = np.random.default_rng(1).standard_normal(array.shape)
    run(array, array)
    np.testing.assert_allclose(array, scipy.fft.fft(values, axis=2), atol=1e-12)
    assert chosen.run_for(task_on(array, axis=2)) is run
    assert Selection("auto", "estimate").run_for(task)
    assert slow.planned[-1] == (task, "estimate")


def test_both_directions_are_measured_once(fakes, array, monkeypatch):
    fakes(Fake("slow", SLOW), Fake("fast", 0))
    chosen = Selection("auto", "measure")
    chosen.run_for(task_on(array, axis=2, scale=2))
    monkeypatch.setattr(selection, "measure", no_measuring)
    chosen.run_for(task_on(array, axis=2, scale=1, forward=False))
    assert set(chosen.choices.values()) == {"fast"}
    chosen.run_for(task_on(array, axis=2, scale=0))
    chosen.run_for(task_on(array[:1], axis=2))  # of a rest of blocks
    assert len(chosen.choices) == 4
    with pytest.raises(AssertionError, match="measured"):
        chosen.run_for(task_on(array, axis=1))


def test_nothing_is_measured_while_a_transform_waits(fakes, array, monkeypatch):
    first, fast = Fake("first", SLOW), Fake("fast", 0)
    fakes(first, fast)
    chosen = Selection("auto", "measure")
    chosen.run_for(task_on(array, axis=2))
    chosen.settle()
    monkeypatch.setattr(selection, "measure", no_measuring)
    for task in (task_on(array, axis=2, scale=2), task_on(array, axis=1)):
        chosen.run_for(task)
    assert list(chosen.choices.values()) == ["fast", "fast", "first"]


@pytest.mark.parametrize("effort", ["brief", "measure"])
@pytest.mark.parametrize("recorded", ["brief", "measure"])
def test_what_was_measured_is_known_whatever_the_effort(
    fakes, array, path, monkeypatch, effort, recorded
):
    fakes(Fake("first", SLOW), Fake("fast", 0))
    task = task_on(array, axis=2)
    first = Selection("auto", recorded, Wisdom(path))
    first.run_for(task)
    first.wisdom.keep([first.wisdom.news()])
    monkeypatch.setattr(selection, "measure", no_measuring)
    again = Selection("auto", effort, Wisdom(path))
    again.run_for(task)
    assert set(again.choices.values()) == {"fast"}


@pytest.mark.parametrize("age", [0.9, 1.1])
def test_a_decision_is_made_anew_when_it_is_old(array, path, monkeypatch, age):
    task = str(task_on(array))
    memory = Wisdom(path)
    memory.learn(task, "scipy")
    memory.keep()
    now = wisdom.time.time() + age * wisdom.MOST_AGE
    monkeypatch.setattr(wisdom.time, "time", lambda: now)
    expected = "scipy" if age < 1 else None
    assert Wisdom(path).recall(task) == expected


def test_a_brief_plan_measures_as_long_as_its_time_lasts(fakes, array, monkeypatch):
    fakes(Fake("first", SLOW), Fake("fast", 0))
    monkeypatch.setattr(selection, "BRIEF_SECONDS", SLOW)  # the first family takes more
    chosen = Selection("auto", "brief")
    for axis in (2, 1):
        chosen.run_for(task_on(array, axis=axis))
    assert list(chosen.choices.values()) == ["fast", "first"]


@pytest.mark.parametrize("effort", ["brief", "measure"])
def test_a_measurement_takes_few_lines(fakes, monkeypatch, effort):
    only = Fake("only", 0)
    fakes(only)
    monkeypatch.setattr(selection, "MEMORY", 1 << 12)
    whole = np.zeros((64, 32, 16), complex)
    task = task_on(whole, axis=1)
    Selection("auto", effort).run_for(task)
    tried = [planned for planned, _ in only.planned if planned.source.shape != whole.shape]
    assert tried
    for each in tried:
        assert each.source.shape[1] == 32
        assert np.prod(each.source.shape) * 16 <= 2 << 12
    assert only.planned[-1][0].source.shape == whole.shape  # and what runs is for all of them


@pytest.mark.parametrize("effort", ["brief", "measure"])
def test_few_very_long_lines_are_not_measured(fakes, monkeypatch, effort):
    """Which would take as long, and as much memory, as the transforms themselves."""
    first, other = Fake("first", 0), Fake("other", 0)
    fakes(first, other)
    monkeypatch.setattr(selection, "LONGEST", 1 << 14)
    task = task_on(np.zeros((2, 1 << 10), complex), axis=1)
    Selection("auto", effort).run_for(task)
    assert [*first.planned, *other.planned] == [(task, "estimate")]


def test_a_choice_stays_that_was_made_without_a_measurement(fakes, monkeypatch, array):
    fakes(Fake("first", 0), Fake("other", 0))
    monkeypatch.setattr(selection, "BRIEF_SECONDS", 0.0)
    chosen = Selection("auto", "brief")
    tasks = [task_on(array, axis=2), task_on(array[:1], axis=2)]
    assert len({family_of(task) for task in tasks}) == 1
    chosen.run_for(tasks[0])
    chosen.wisdom.learn(family_of(tasks[0]), "other")  # of another plan
    chosen.run_for(tasks[1])
    assert set(chosen.choices.values()) == {"first"}


@pytest.fixture
def timed(monkeypatch):
    """Makes calls that take so long, of the processor's time and waiting."""
    clocks = {"thread_time": 0.0, "perf_counter": 0.0}
    for name in clocks:
        monkeypatch.setattr(selection, name, lambda name=name: clocks[name])

    def calls(**costs):
        def call(busy, waiting):
            def run(source, target):
                clocks["thread_time"] += busy
                clocks["perf_counter"] += busy + waiting

            return run

        return {name: call(*cost) for name, cost in costs.items()}

    return calls


@pytest.mark.parametrize("threads", [1, 2])
def test_what_waits_for_its_threads_is_not_fast(array, timed, threads):
    """By the processor time of the calling thread alone it would be."""
    runs = timed(waits=(1.0, 4.0), works=(2.0, 0.0))
    task = replace(task_on(array, axis=1), threads=threads)
    times = selection.measure(runs, task, budget=30.0)
    assert min(times, key=times.get) == ("waits" if threads == 1 else "works")


def test_without_measuring_the_first_kernel_is_taken(fakes, array):
    first, second = Fake("first", SLOW, kinds=("c2c",)), Fake("second", 0)
    fakes(first, second)
    chosen = Selection("auto", "estimate")
    real, half = np.zeros((4, 6)), np.zeros((4, 4), complex)
    for task, choice in (
        (task_on(array, axis=0), "first"),
        (task_on(array, array.copy(), axis=0), "first"),
        (task_on(array, array.copy(), axis=2), "first"),
        (task_on(array, array.T.copy().T, axis=1), "first"),
        (task_on(real, half, "r2c", 1), "second"),
    ):
        chosen.run_for(task)
        assert chosen.choices[task] == choice
    assert chosen.name == "auto (first, second)"


def test_measuring_makes_no_large_numbers(array):
    """In place and without a factor, data would grow with every run."""
    seen = []

    def run(source, target):
        np.multiply(source, 1e200, out=target)
        seen.append(np.abs(target).max())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selection.measure({"one": run, "two": run}, task_on(array))
    assert len(seen) >= 4  # both twice, then as often as there is time
    assert max(seen) == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_named_kernel_cannot_do_is_done_by_scipy(fakes, array, monkeypatch, threads):
    """But not what it can do with fewer threads."""
    fakes(Fake("mkl", 0), registry.load_kernel("scipy"))
    monkeypatch.setattr(selection, "resolve_backend", str)
    real = np.zeros((4, 6))
    tasks = [task_on(real, kind="dct2", axis=1), task_on(array)]
    for effort in ("estimate", "measure"):
        chosen = Selection("mkl", effort)
        for task in tasks:
            chosen.run_for(replace(task, threads=threads))
        assert list(chosen.choices.values()) == ["scipy", "mkl"]


def test_pages_that_a_measurement_would_touch():
    """Two lines along the first axis of a large array have data in a page per element."""
    side = Layout((1 << 15, 2), (1 << 15, 8), "d")
    assert side.touched == 1 << 27
    assert Layout((3, 1 << 15), (1 << 18, 8), "d").touched == 3 << 18
    assert Layout((4, 6), (48, 8), "d").touched == 1 << 12


def test_nothing_is_done_to_empty_arrays():
    empty = np.zeros((4, 0, 3), complex)
    chosen = Selection("auto", "measure")
    for axis in range(3):
        chosen.run_for(task_on(empty, axis=axis))(empty, empty)
    real, half = np.zeros((0, 4)), np.zeros((0, 3), complex)
    chosen.run_for(task_on(real, half, "r2c", 1))(real, half)
    assert chosen.choices == {}
    assert chosen.name == "auto"


def test_wrong_arguments():
    with pytest.raises(PatternError, match="'patient'"):
        Selection("auto", "patient")
    with pytest.raises(PatternError, match="'fftpack'"):
        Selection("fftpack")
    with pytest.raises(PatternError, match="axis 1 has 1"):
        Selection("scipy").run_for(task_on(np.zeros((3, 1)), kind="dct1", axis=1))


def test_a_broken_kernel_is_passed_over(monkeypatch):
    monkeypatch.setitem(
        registry.BACKENDS, "mkl", registry.Backend("mkl", "no_such_kernel", lambda: True)
    )
    chosen = Selection("auto", "estimate")
    chosen.run_for(task_on(np.zeros(8, complex)))
    assert "mkl" not in chosen.name
    with pytest.raises(UnsupportedError, match="'mkl'"):
        Selection("mkl")


def test_memory_in_the_form_of_a_layout():
    whole = np.zeros((5, 6, 7), np.float32)
    for view in (whole, whole.T, whole[::-1, 1:5:2], whole.transpose(1, 2, 0)[..., ::-2]):
        layout = Layout.of(view)
        made = layout.untouched(12)
        assert Layout.of(made) == layout
        made[...] = np.arange(made.size).reshape(made.shape)
        assert made.sum() == made.size * (made.size - 1) / 2


# Wisdom.


def no_measuring(*arguments):
    raise AssertionError("measured")


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A wisdom file, which is the default one too."""
    chosen = tmp_path / "folder" / "wisdom.json"
    monkeypatch.setenv(wisdom.VARIABLE, str(chosen))
    return chosen


def test_what_is_known_is_kept_when_it_is_asked_for(fakes, array, path, monkeypatch):
    """It is known of its task alone, and an estimate asks nobody."""
    fakes(Fake("slow", SLOW), Fake("fast", 0))
    task = task_on(array, axis=2)
    first = Selection("auto", "measure", Wisdom(path))
    first.run_for(task)
    assert not path.exists()
    first.wisdom.keep([first.wisdom.news()])
    monkeypatch.setattr(selection, "measure", no_measuring)
    estimate = Selection("auto", "estimate", Wisdom(path))
    estimate.run_for(task)
    assert set(estimate.choices.values()) == {"slow"}
    second = Selection("auto", "measure", Wisdom(path))
    second.run_for(task)
    for memory, other in ((Wisdom(path), task_on(array, axis=1)), (False, task)):
        with pytest.raises(AssertionError, match="measured"):
            Selection("auto", "measure", memory).run_for(other)
    stamp = path.stat().st_mtime_ns, path.stat().st_ino
    second.wisdom.keep([second.wisdom.news()])
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == stamp, "nothing new was written"


def test_decisions_for_kernels_that_are_gone_are_ignored(fakes, array, path):
    fakes(Fake("there", 0))
    task = task_on(array, axis=2)
    for stale in ("gone", "there: somehow"):
        memory = Wisdom(path)
        memory.learn(family_of(task), stale)
        chosen = Selection("auto", "measure", memory)
        chosen.run_for(task)
        assert chosen.choices == {task: "there"}
        assert memory.recall(family_of(task)) == "there"


def test_decisions_of_other_machines_and_versions_are_kept_apart(array, path, monkeypatch):
    task = str(task_on(array))
    memory = Wisdom(path)
    memory.learn(task, "scipy")
    memory.keep()
    monkeypatch.setattr(wisdom, "_machine", lambda: "another processor; scipy 99")
    assert Wisdom(path).recall(task) is None
    other = Wisdom(path)
    other.learn(task, "ducc0")
    other.keep()
    assert len(Wisdom(path).decisions()) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"format": "something else", "decisions": {}}',
        b'{"format": "onesided wisdom 4", "decisions": {}}',
        b'{"format": "onesided wisdom 3"}',
        b'{"format": "onesided wisdom 3", "decisions": {"a": "scipy"}}',
        b'{"format": "onesided wisdom 3", "decisions": {"a": ["scipy"]}}',
        b'{"format": "onesided wisdom 3", "decisions": {"a": ["scipy", "x"]}}',
    ],
)
def test_other_files_are_ignored_with_a_warning(content, array, path):
    path.parent.mkdir()
    path.write_bytes(content)
    memory, task = Wisdom(path), str(task_on(array))
    with pytest.warns(RuntimeWarning, match="wisdom is ignored"):
        assert memory.recall(task) is None
    with pytest.raises(PatternError, match="is no wisdom"):
        wisdom.import_wisdom(path)
    memory.learn(task, "scipy")
    with pytest.warns(RuntimeWarning, match="wisdom is ignored"):
        memory.keep()
    assert Wisdom(path).recall(task) == "scipy"


def test_a_place_that_cannot_be_written_is_a_warning(array, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    memory, task = Wisdom(tmp_path / "file" / "wisdom.json"), str(task_on(array))
    memory.learn(task, "scipy")
    with pytest.warns(RuntimeWarning, match="wisdom is not kept"):
        memory.keep()
    assert memory.recall(task) == "scipy"


def test_saves_at_the_same_time_leave_a_whole_file(path):
    """Each writer replaces the file; a reader never sees a part of one."""
    arrays = [np.zeros((2, n)) for n in range(2, 42)]

    def write(writer):
        for array in arrays[writer::4]:
            memory = Wisdom(path)
            memory.learn(str(task_on(array, kind="dct2")), f"writer {writer}")
            memory.keep()
            content = json.loads(path.read_text())
            assert content["format"] == wisdom.FORMAT
            assert content["decisions"]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert os.listdir(path.parent) == [path.name]
    assert len(Wisdom(path).decisions()) >= 10


def test_export_import_forget(array, path, tmp_path, monkeypatch):
    task, exported = str(task_on(array)), tmp_path / "exported.json"
    open_wisdom().learn(task, "scipy")
    wisdom.export_wisdom(exported)
    assert not path.exists()
    wisdom.forget_wisdom()
    assert open_wisdom().recall(task) is None
    wisdom.import_wisdom(exported)
    assert path.exists()
    assert open_wisdom().recall(task) == "scipy"
    wisdom.forget_wisdom()
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        wisdom.import_wisdom(tmp_path / "missing.json")
    monkeypatch.setenv(wisdom.VARIABLE, "off")
    wisdom.forget_wisdom()
    for function in (wisdom.export_wisdom, wisdom.import_wisdom):
        with pytest.raises(UnsupportedError, match=wisdom.VARIABLE):
            function(exported)


def test_files_are_pruned_and_open_to_others(path, monkeypatch):
    """The latest decisions are kept."""
    monkeypatch.setattr(wisdom, "MOST_DECISIONS", 4)
    one = wisdom.Decision("scipy", 0.0)
    wisdom.write_decisions(path, {f"machine {k}; a": one for k in range(4)})
    mine = open_wisdom()
    for k in (1, 2, 3, 2):
        mine.learn(f"task {k}", f"answer {k}")
        mine.keep()
    kept = [key.rpartition("; ")[2] for key in wisdom.read_decisions(path)]
    assert kept == ["a", "task 1", "task 3", "task 2"]
    mask = os.umask(0o022)
    try:
        mine.learn("task 5", "answer")
        mine.keep()
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644


def test_where_wisdom_is(path, tmp_path, monkeypatch):
    assert open_wisdom().path == path
    assert open_wisdom(True) is open_wisdom() is open_wisdom(path)
    assert open_wisdom(open_wisdom()) is open_wisdom()
    assert open_wisdom(tmp_path / "mine.json").path == tmp_path / "mine.json"
    assert open_wisdom(False).path is None
    monkeypatch.setenv(wisdom.VARIABLE, "off")
    assert open_wisdom().path is None
    assert open_wisdom(tmp_path / "mine.json") is not None
    monkeypatch.delenv(wisdom.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_wisdom().path == tmp_path / "onesided" / "wisdom.json"
