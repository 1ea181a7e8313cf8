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
from onesided.pencilfft.kernels.wisdom import Wisdom, open_wisdom, with_lengths

SLOW = 3e-3


def task_on(source, target=None, kind="c2c", axis=0, scale=0, **more):
    """A task on these arrays; in place without a target."""
    target_of = source if target is None else target
    options = {"forward": True, "orthogonal": False, **more}
    return Task(kind, axis, scale=scale, source=Layout.of(source), target=Layout.of(target_of),
                in_place=target is None, **options)  # fmt: skip


class Fake:
    """A kernel that needs at least this processor time, or another one where lines are dense."""

    def __init__(self, name, seconds, dense_seconds=None, kinds=("c2c", "r2c", "c2r")):
        self.name, self.kinds, self.planned = name, kinds, []
        self.seconds = seconds, seconds if dense_seconds is None else dense_seconds

    def plan(self, task, effort):
        if task.kind not in self.kinds:
            return None
        self.planned.append((task, effort))
        dense = task.source.strides[task.axis] == np.dtype(task.source.char).itemsize
        seconds = self.seconds[dense]

        def run(source, target):
            end = thread_time() + seconds
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
    assert chosen.choices == {str(task): "fast: direct"}
    assert chosen.name == "auto (fast)"
    array[...] = values = np.random.default_rng(1).standard_normal(array.shape)
    run(array, array)
    np.testing.assert_allclose(array, scipy.fft.fft(values, axis=2), atol=1e-12)
    assert chosen.run_for(task_on(array, axis=2)) is run
    assert Selection("auto", "estimate").run_for(task)
    assert slow.planned[-1] == (task, "estimate")


def test_the_fastest_way_is_chosen(fakes, array):
    """A kernel that is slow on strided lines gets copies of them."""
    fakes(Fake("only", SLOW, 0))
    chosen = Selection("auto", "measure")
    strided, dense = task_on(array, axis=0), task_on(array, axis=2)
    run = chosen.run_for(strided)
    chosen.run_for(dense)
    assert chosen.choices == {str(strided): "only: in scratch", str(dense): "only: direct"}
    array[...] = values = np.random.default_rng(2).standard_normal(array.shape)
    run(array, array)
    np.testing.assert_allclose(array, scipy.fft.fft(values, axis=0), atol=1e-12)


def test_both_directions_are_measured_once(fakes, array, monkeypatch):
    fakes(Fake("slow", SLOW), Fake("fast", 0))
    chosen = Selection("auto", "measure")
    chosen.run_for(task_on(array, axis=2, scale=2))
    monkeypatch.setattr(selection, "measure", no_measuring)
    chosen.run_for(task_on(array, axis=2, scale=1, forward=False))
    assert set(chosen.choices.values()) == {"fast: direct"}
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
    assert list(chosen.choices.values()) == ["fast: direct", "fast: direct", "first: direct"]


@pytest.mark.parametrize("effort", ["brief", "measure"])
@pytest.mark.parametrize("recorded", ["brief", "measure"])
def test_what_was_measured_with_as_much_effort_is_known(
    fakes, array, path, monkeypatch, effort, recorded
):
    fakes(Fake("first", SLOW), Fake("fast", 0))
    task = task_on(array, axis=2)
    first = Selection("auto", recorded, Wisdom(path))
    first.run_for(task)
    first.wisdom.keep([first.wisdom.news()])
    seen = []
    measure = selection.measure
    monkeypatch.setattr(selection, "measure", lambda *a: seen.append(1) or measure(*a))
    again = Selection("auto", effort, Wisdom(path))
    again.run_for(task)
    assert set(again.choices.values()) == {"fast: direct"}
    assert bool(seen) == (effort == "measure" and recorded == "brief")


@pytest.mark.parametrize("age", [0.9, 1.1])
def test_a_decision_is_made_anew_when_it_is_old(array, path, monkeypatch, age):
    task = str(task_on(array))
    memory = Wisdom(path)
    memory.learn("auto", with_lengths(task, [5]), "scipy: direct", "measure")
    memory.keep()
    now = wisdom.time.time() + age * wisdom.MOST_AGE
    monkeypatch.setattr(wisdom.time, "time", lambda: now)
    expected = "scipy: direct" if age < 1 else None
    assert Wisdom(path).recall("auto", with_lengths(task, [5]), ["measure"]) == expected


def test_a_brief_plan_measures_as_long_as_its_time_lasts(fakes, array, monkeypatch):
    fakes(Fake("first", SLOW), Fake("fast", 0))
    monkeypatch.setattr(selection, "BRIEF_SECONDS", SLOW)  # the first family takes more
    chosen = Selection("auto", "brief")
    for axis in (2, 1):
        chosen.run_for(task_on(array, axis=axis))
    assert list(chosen.choices.values()) == ["fast: direct", "first: direct"]


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
        (task_on(array, axis=0), "first: direct"),
        (task_on(array, array.copy(), axis=0), "first: direct"),
        (task_on(array, array.copy(), axis=2), "first: direct"),
        (task_on(array, array.T.copy().T, axis=1), "first: direct"),
        (task_on(real, half, "r2c", 1), "second: direct"),
    ):
        chosen.run_for(task)
        assert chosen.choices[str(task)] == choice
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


def test_what_a_named_kernel_cannot_do_is_done_by_scipy(fakes, array, monkeypatch):
    fakes(Fake("partial", 0), registry.load_kernel("scipy"))
    monkeypatch.setattr(selection, "resolve_backend", str)
    real = np.zeros((4, 6))
    task = task_on(real, kind="dct2", axis=1)
    for effort in ("estimate", "measure"):
        chosen = Selection("partial", effort)
        chosen.run_for(task)
        chosen.run_for(task_on(array))
        assert [choice.split(":")[0] for choice in chosen.choices.values()] == ["scipy", "partial"]


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


def test_large_tasks_are_measured_in_little_memory(fakes, monkeypatch):
    only = Fake("only", 0)
    fakes(only)
    whole = np.zeros((64, 64, 64), complex)
    block = whole[:, :2, :2]
    task = task_on(block)
    assert task.source.span > 60 * 64 * 64 * 16
    monkeypatch.setattr(selection, "MEMORY", 1 << 16)
    tried = selection.trial(task)
    assert tried.source.span == block.nbytes
    Selection("auto", "measure").run_for(task)
    assert {planned.source.shape for planned, _ in only.planned} == {block.shape}
    only.planned.clear()
    monkeypatch.setattr(selection, "MEMORY", 16)
    assert selection.trial(task) is None
    Selection("auto", "measure").run_for(task)
    assert only.planned == [(task, "estimate")]


def test_memory_in_the_form_of_a_layout():
    whole = np.zeros((5, 6, 7), np.float32)
    for view in (whole, whole.T, whole[::-1, 1:5:2], whole.transpose(1, 2, 0)[..., ::-2]):
        layout = Layout.of(view)
        made = layout.untouched(12)
        assert Layout.of(made) == layout
        made[...] = np.arange(made.size).reshape(made.shape)
        assert made.sum() == made.size * (made.size - 1) / 2
        dense = layout.packed()
        assert dense.span == view.nbytes
        assert dense.shape == view.shape


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
    assert set(estimate.choices.values()) == {"slow: direct"}
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
    for stale in ("gone: direct", "there: somehow", "nonsense", "there: in scratch"):
        memory = Wisdom(path)
        memory.learn("auto", family_of(task), stale, "measure")
        chosen = Selection("auto", "measure", memory)
        chosen.run_for(task)
        assert chosen.choices == {str(task): "there: direct"}
        assert memory.recall("auto", family_of(task), ["measure"]) == "there: direct"


def test_decisions_of_other_machines_and_versions_are_kept_apart(array, path, monkeypatch):
    task = str(task_on(array))
    memory = Wisdom(path)
    memory.learn("auto", task, "scipy: direct", "measure")
    memory.keep()
    monkeypatch.setattr(wisdom, "_machine", lambda: "another processor; scipy 99")
    assert Wisdom(path).recall("auto", task, ["measure"]) is None
    other = Wisdom(path)
    other.learn("auto", task, "ducc0: direct", "measure")
    other.keep()
    assert sorted(len(section) for section in Wisdom(path).decisions().values()) == [1, 1]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"format": "something else", "decisions": {}}',
        b'{"format": "onesided wisdom 2"}',
        b'{"format": "onesided wisdom 2", "decisions": {"a": {"b": "scipy: direct"}}}',
        b'{"format": "onesided wisdom 2", "decisions": {"a": {"b": ["scipy", "brief"]}}}',
        b'{"format": "onesided wisdom 2", "decisions": {"a": {"b": ["scipy", "brief", "x"]}}}',
    ],
)
def test_other_files_are_ignored_with_a_warning(content, array, path):
    path.parent.mkdir()
    path.write_bytes(content)
    memory, task = Wisdom(path), str(task_on(array))
    with pytest.warns(RuntimeWarning, match="wisdom is ignored"):
        assert memory.recall("auto", task, ["measure"]) is None
    with pytest.raises(PatternError, match="is no wisdom"):
        wisdom.import_wisdom(path)
    memory.learn("auto", task, "scipy: direct", "measure")
    with pytest.warns(RuntimeWarning, match="wisdom is ignored"):
        memory.keep()
    assert Wisdom(path).recall("auto", task, ["measure"]) == "scipy: direct"


def test_a_place_that_cannot_be_written_is_a_warning(array, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    memory, task = Wisdom(tmp_path / "file" / "wisdom.json"), str(task_on(array))
    memory.learn("auto", task, "scipy: direct", "measure")
    with pytest.warns(RuntimeWarning, match="wisdom is not kept"):
        memory.keep()
    assert memory.recall("auto", task, ["measure"]) == "scipy: direct"


def test_saves_at_the_same_time_leave_a_whole_file(path):
    """Each writer replaces the file; a reader never sees a part of one."""
    arrays = [np.zeros((2, n)) for n in range(2, 42)]

    def write(writer):
        for array in arrays[writer::4]:
            memory = Wisdom(path)
            memory.learn("auto", str(task_on(array, kind="dct2")), f"writer {writer}", "measure")
            memory.keep()
            content = json.loads(path.read_text())
            assert content["format"] == wisdom.FORMAT
            assert content["decisions"]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert os.listdir(path.parent) == [path.name]
    (section,) = Wisdom(path).decisions().values()
    assert len(section) >= 10


def test_export_import_forget(array, path, tmp_path, monkeypatch):
    task, exported = str(task_on(array)), tmp_path / "exported.json"
    open_wisdom().learn("auto", task, "scipy: direct", "measure")
    wisdom.export_wisdom(exported)
    assert not path.exists()
    wisdom.forget_wisdom()
    assert open_wisdom().recall("auto", task, ["measure"]) is None
    wisdom.import_wisdom(exported)
    assert path.exists()
    assert open_wisdom().recall("auto", task, ["measure"]) == "scipy: direct"
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
    """The latest decisions are kept, those of this machine among them."""
    monkeypatch.setattr(wisdom, "MOST_SECTIONS", 2)
    monkeypatch.setattr(wisdom, "MOST_DECISIONS", 3)
    one = wisdom.Decision("scipy: direct", "brief", 0.0)
    old = {f"machine {k}": {"auto a": one} for k in range(4)}
    wisdom.write_decisions(path, old)
    mine = open_wisdom()
    for k in (1, 2, 3, 4, 2):
        mine.learn("auto", f"task {k}", f"answer {k}", "measure")
        mine.keep()
    kept = wisdom.read_decisions(path)
    assert next(iter(kept)) == "machine 3"
    assert list(kept.popitem()[1]) == ["auto task 3", "auto task 4", "auto task 2"]
    mask = os.umask(0o022)
    try:
        mine.learn("auto", "task 5", "answer", "measure")
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
