"""Scripts: the compiled interpreter against the one in Python, step for step. No MPI."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from onesided.collectives import scripts
from onesided.collectives.program import COMPILED
from onesided.collectives.scripts import (
    ALONE,
    Answer,
    Gather,
    Kernel,
    Part,
    PythonScript,
    Scaling,
    Work,
    copy_array,
    script,
)
from onesided.collectives.steps import address

compiled = pytest.mark.skipif(not COMPILED, reason="the compiled core is not in use")


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
def add_one(handle, source, target):
    """A kernel: the first number of the target becomes that of the source, and one."""
    ctypes.c_double.from_address(target).value = ctypes.c_double.from_address(source).value + 1


@ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
def failing(handle, source, target):
    """A kernel that returns its handle as a status."""
    return handle or 0


class AddOne:
    """One is added to the first number, from the source to the target, and all are scaled."""

    def __init__(self, factor):
        self.factor, self.lowerings = factor, 0

    def __call__(self, source, target):
        index = (0,) * target.ndim
        target.real[index] = source.real[index] + 1
        target *= self.factor

    def lowered(self, source, target):
        self.lowerings += 1
        function = ctypes.cast(add_one, ctypes.c_void_p).value
        return [Kernel(function, 0, checked=False), Scaling(self.factor)]


def random_box(rng, shape):
    starts = [int(rng.integers(0, n)) for n in shape]
    return tuple(
        slice(a, int(rng.integers(a + 1, n + 1))) for a, n in zip(starts, shape, strict=True)
    )


def reversed_copy(source, target):
    """A step that the core does not know."""
    target[...] = source[::-1].copy()


def random_steps(rng, arrays, calls):
    """Copies between random boxes of arrays of one dtype, ends among them, kernels and calls."""
    steps = []
    for _ in range(12):
        first, second = rng.integers(0, len(arrays), 2)
        where = random_box(rng, arrays[0].shape)

        def place(number, where=where):
            return Part(int(number), where) if number < 2 else arrays[number][where]

        kind = rng.integers(0, 5)
        if kind == 0:
            steps.append(lambda: calls.append(len(calls)))
        elif kind == 1:
            steps.append((AddOne(float(rng.uniform(0.5, 2))), place(first), place(second)))
        elif kind == 2:
            steps.append((reversed_copy, place(first), place(second)))
        else:
            steps.append((copy_array, place(first), place(second)))
    return steps


@compiled
@pytest.mark.parametrize("char", "dfFD")
@pytest.mark.parametrize("seed", range(12))
def test_both_interpreters_do_the_same(monkeypatch, seed, char):
    rng = np.random.default_rng([seed, ord(char)])
    shape = tuple(rng.integers(1, 6, rng.integers(1, 4)))
    order = rng.permutation(len(shape))

    def make(k):
        memory = np.empty([2 * shape[axis] for axis in order], char)
        array = memory.transpose(np.argsort(order))[tuple(slice(None, n) for n in shape)]
        array[...] = np.random.default_rng([seed, k]).standard_normal(shape)
        return array

    if char in "fF":  # the kernel is one of double precision
        monkeypatch.setattr(AddOne, "lowered", lambda self, s, t: [Scaling(self.factor)])
        monkeypatch.setattr(AddOne, "__call__", lambda self, s, t: np.multiply(t, self.factor, t))
    samples = make(0), make(1)
    results = []
    for interpreter in (script, lambda steps, ends: PythonScript(steps, len(ends))):
        calls, arrays = [], [make(k) for k in range(4)]
        ends = arrays[0], arrays[1]
        steps = random_steps(np.random.default_rng([seed, 99]), arrays, calls)
        interpreter(steps, samples)(ends, (address(ends[0]), address(ends[1])))
        results.append((calls, arrays))
    assert results[0][0] == results[1][0]
    for ours, theirs in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@compiled
def test_kernels_are_called_by_the_core_wherever_the_ends_are():
    kernel = AddOne(2.0)
    samples = np.zeros(8), np.zeros(8)
    run = script([(kernel, Part(0, (slice(3, 5),)), Part(1, (slice(6, 8),)))], samples)
    for _ in range(3):
        ends = np.full(8, 5.0), np.full(8, 7.0)
        run(ends, (address(ends[0]), address(ends[1])))
        assert ends[1].tolist() == [7] * 6 + [12, 14]
    assert kernel.lowerings == 1


@compiled
def test_the_status_of_a_kernel_is_raised():
    class Failing(AddOne):
        def lowered(self, source, target):
            return [Kernel(ctypes.cast(failing, ctypes.c_void_p).value, 7, checked=True)]

    ends = np.zeros(2), np.zeros(2)
    after = []
    run = script([(Failing(1.0), Part(0), Part(1)), lambda: after.append(1)], ends)
    with pytest.raises(RuntimeError, match="status 7"):
        run(ends, (address(ends[0]), address(ends[1])))
    assert not after


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_void_p))
def weighted(handle, number, places):
    """Work: the second place becomes number times the first, by items of double precision."""
    for i in range(3):
        source, target = (ctypes.c_double.from_address(places[j] + 8 * i) for j in (0, 1))
        target.value = number * source.value + (handle or 0)


@pytest.mark.parametrize("python", [True, pytest.param(False, marks=compiled)])
@pytest.mark.parametrize("end", [2, 3])
@pytest.mark.parametrize("k", [(), (2,), (3,)], ids=str)
def test_what_is_gathered_and_answered(monkeypatch, python, end, k):
    """As in a product: rows are gathered, a call answers an array, others work with it."""
    if python:
        monkeypatch.setattr(scripts, "COMPILED", False)
    index, gathered = np.array([4, 0, 4]), np.zeros((3, *k))
    none = np.zeros((0, *k))
    answers = [np.arange(3.0), np.arange(3.0) + 1]
    work = Work(
        (Part(end), Part(1)), ctypes.cast(weighted, ctypes.c_void_p).value, 3, 5,
        reference=lambda x, y: np.add(3 * x, 5, out=y),
    )  # fmt: skip
    taken = []
    run = script(
        [
            (Gather(index), Part(0), gathered),
            (Gather(index[:0]), Part(0), none),
            Answer(lambda: answers[len(taken) % 2], end),
            work,
            (lambda x, y: taken.append(x.tolist()), Part(end), Part(1)),
        ],
        (np.zeros((5, *k)), *[np.zeros(3)] * end),
    )
    for turn in range(3):
        x, y = np.random.default_rng(turn).random((5, *k)), np.zeros(3)
        x.flags.writeable = False
        run((x, y))
        assert np.array_equal(gathered, x[index])
        assert y.tolist() == (3 * answers[turn % 2] + 5).tolist()
    assert taken == [answers[turn % 2].tolist() for turn in range(3)]
    with pytest.raises(ValueError, match=f"{end + 1} ends"):
        run((x, y, y, y, y))


@compiled
def test_ends_of_other_sizes_are_refused():
    answer = [np.zeros(3)]
    copied = (copy_array, Part(2), Part(1))
    steps = [Answer(lambda: answer[0], 2), copied]
    run = script(steps, (np.zeros(2), np.zeros(3), np.zeros(3)))
    run((np.zeros(2), np.zeros(3)))
    still = np.zeros(3)
    still.flags.writeable = False
    for ends, words in (
        ((np.zeros(2),), "1 ends of a script are given, 2 are needed"),
        ((np.zeros(3), np.zeros(3)), "end 0 of a script has 16 bytes, not 24"),
        ((np.zeros(2), np.zeros(2)), "end 1 of a script"),
        ((np.zeros(4)[::2], np.zeros(3)), "not C-contiguous"),
        ((np.zeros(2), still), "read-only"),
    ):
        with pytest.raises(ValueError, match=words):
            run(ends)
    answer[0] = np.zeros(1)
    with pytest.raises(ValueError, match="end 2"):
        run((np.zeros(2), np.zeros(3)))
    answer[0] = None
    with pytest.raises(TypeError):
        run((np.zeros(2), np.zeros(3)))


@pytest.mark.parametrize("python", [True, False])
def test_an_exception_of_a_step_ends_the_script(monkeypatch, python):
    if python:
        monkeypatch.setattr(scripts, "COMPILED", False)
    ends = np.zeros(2), np.zeros(2)

    def fails():
        raise KeyError("here")

    run = script([fails, (copy_array, np.ones(2), Part(1))], ends)
    with pytest.raises(KeyError, match="here"):
        run(ends, (address(ends[0]), address(ends[1])))
    assert ends[1].tolist() == [0, 0]


@compiled
def test_a_script_keeps_its_arrays_and_lets_them_go():
    bound = np.arange(4.0)
    gone = weakref.ref(bound)
    ends = np.zeros(4), np.zeros(4)
    itself = []
    run = script([(copy_array, bound, Part(1)), itself.copy], ends)
    itself.append(run)
    del bound
    gc.collect()
    run(ends, (address(ends[0]), address(ends[1])))
    assert ends[1].tolist() == [0, 1, 2, 3]
    del run, itself
    gc.collect()
    assert gone() is None


@contextlib.contextmanager
def counting():
    """Another thread counts."""
    count, stop = [0], threading.Event()

    def work():
        while not stop.is_set():
            count[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()


@compiled
def test_long_scripts_let_other_threads_run():
    """While the core copies, and not only between two calls of it."""
    interval = sys.getswitchinterval()
    big = np.zeros(16 * ALONE, np.uint8)
    ends = big, np.empty_like(big)
    run = script([(copy_array, Part(0), Part(1))] * 50, ends)
    with counting() as count:
        sys.setswitchinterval(1000)
        try:
            before = count[0]
            for _ in range(20):
                run(ends, (address(ends[0]), address(ends[1])))
            assert count[0] > before
        finally:
            sys.setswitchinterval(interval)


@compiled
def test_between_two_calls_nobody_gets_the_interpreter():
    """A long script gives up the lock for what it does by itself, not where there is nothing."""
    seen, interval = set(), sys.getswitchinterval()
    big = np.zeros(ALONE, np.uint8)
    with counting() as count:
        calls = [lambda: seen.add(count[0])] * 30000
        run = script([*calls, (copy_array, Part(0), Part(1))], (big, big.copy()))
        sys.setswitchinterval(1000)
        try:
            for _ in range(5):
                seen.clear()
                run((big, big.copy()))
                assert len(seen) == 1
        finally:
            sys.setswitchinterval(interval)
