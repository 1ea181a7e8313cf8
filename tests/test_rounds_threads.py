"""A round that two threads are at: the one that waits, and the progress thread; no MPI."""

from __future__ import annotations

import dis
import signal
import sys
import threading
import time

import numpy as np
import pytest
from rounds_worlds import stand_in

from onesided.collectives import program, progress
from onesided.collectives.errors import RequestError
from onesided.collectives.program import PythonRounds, Rounds, load
from onesided.collectives.steps import CALL, _core, call, wait_for

KINDS = [PythonRounds]
if _core is not None:
    KINDS.append(_core.Rounds)


def load_into(request, plans):
    """Programs of calls alone, which are the same for both interpreters."""
    request._load(plans, (None,), None, None)


@pytest.mark.parametrize("verb", ["Wait", "Test"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_another_thread_meets_is_not_taken_for_the_end(kind, verb):
    inside, go_on = threading.Event(), threading.Event()

    def step():
        if threading.current_thread() is threading.main_thread():
            return False
        inside.set()
        go_on.wait(10)
        raise MemoryError

    def advance():
        try:
            request.advance(True)
        except MemoryError:
            pass

    request = stand_in(kind)()
    request._load([[[(CALL, step, True)]]], (None,), None, None)
    request.Start()
    other = threading.Thread(target=advance)
    other.start()
    assert inside.wait(10)
    threading.Timer(0.1, go_on.set).start()
    while request.advance(True) or request.late():
        time.sleep(0.001)
    with pytest.raises(RequestError):
        getattr(request, verb)()
    other.join()


def test_a_request_is_freed_when_nobody_is_inside():
    """Another thread is in a step: its round's steps live as long as that."""
    inside, go_on, freed, raised = (threading.Event() for _ in range(4))

    def step():
        inside.set()
        go_on.wait(10)
        assert not freed.is_set()
        return False

    def wait():
        with pytest.raises(RequestError, match="waited for"):
            request.Wait()
        raised.set()

    def free():
        request._retire()
        request._unload()
        freed.set()

    request = stand_in(Rounds)()
    never = np.zeros(1, np.int64)
    load(request, [[[wait_for(never)], [call(step, in_start=False)]]], [None])
    request.Start()
    threads = [threading.Thread(target=wait), threading.Thread(target=free)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    time.sleep(0.05)
    assert not freed.is_set()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert freed.is_set()
    assert raised.is_set()


def test_a_step_cannot_free_its_request():
    request = stand_in(Rounds)()

    def step():
        with pytest.raises(RequestError, match="in the middle of a call"):
            request._refuse_inside()

    load(request, [[[call(step)]]], [None])
    request.Start()
    request.Wait()


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("verb", ["Wait", "Test"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_that_another_thread_has_opened_is_not_complete(kind, verb, chunks):
    """The one that was waited for is, by another thread, before this one has the lock. One that
    another thread has freed takes no chunk."""

    class Overtaken(stand_in(kind)):
        def _other(self):
            self._hooked = 0
            self.Wait()
            self._open(chunks)
            return True

        _before_wait = _before_test = _other

        def _inactive(self, word):
            return self._refuse("not ready") if self._unready else None

    request = Overtaken()
    load_into(request, [[[call(lambda: None, in_start=False)]], [[call(lambda: None)]]])
    request.Start()
    request._hooked = 1
    with pytest.raises(RequestError, match="not ready"):
        getattr(request, verb)()
    assert (request._state, request._unready) == (program.ACTIVE, chunks)
    for _ in range(chunks):
        request._fill_chunk()
    request.Wait()
    request._open(chunks)
    request._retire()
    with pytest.raises(RequestError, match="told that a chunk is ready"):
        request._fill_chunk()


@pytest.mark.parametrize("verb", ["Start", "Wait", "Test"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_can_give_its_round_up(kind, verb):
    request = stand_in(kind)()
    load_into(request, [[[call(lambda: request._break(MemoryError()), in_start=verb == "Start")]]])
    request.Start()
    if verb != "Start":
        with pytest.raises(RequestError, match="completed"):  # half a round is no whole one
            getattr(request, verb)()
    assert request._state == program.BROKEN
    with pytest.raises(RequestError):
        request.Wait()


@pytest.mark.parametrize("kind", KINDS)
def test_no_call_that_waits_for_other_ranks_begins_while_its_round_is_given_up(kind):
    calls = []
    request = stand_in(kind)()
    load_into(request, [[[call(lambda: calls.append(1), blocks=True)]]])
    request.Start()
    request._freeing = 2
    assert not request.Test()
    request.advance(program.ALL_CALLS)
    assert not calls
    request._freeing = 0
    assert request.Test()
    assert calls == [1]


@pytest.mark.parametrize("flag", ["_freeing", "_opening"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_another_call_opens_or_frees_is_not_started(kind, flag):
    request = stand_in(kind)()
    load_into(request, [[[call(lambda: None)]]])
    setattr(request, flag, 1)
    with pytest.raises(RequestError, match="started"):
        request.Start()
    setattr(request, flag, 0)
    request.Start()


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_that_goes_on_has_moved(kind):
    """Whoever helps looks again soon, long before the chain is at its end."""
    come = [0]
    steps = [call(lambda number=number: come[0] > number) for number in range(3)]
    request = stand_in(kind)()
    load_into(request, [[steps]])
    request.Start()
    for come[0] in (1, 2):
        assert request.advance(program.LOCAL_CALLS)
        assert not request.advance(program.LOCAL_CALLS)
        assert not request._done
    come[0] = 3
    assert request.advance(program.LOCAL_CALLS)
    assert request.Test()


def test_where_no_thread_can_be_made_rounds_go_on_without(monkeypatch):
    class Refused(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(progress, "_thread", None)
    monkeypatch.setattr(progress.threading, "Thread", Refused)
    request = object()
    progress.enlist(request)
    progress.delist(request)
    assert not progress._has_thread()


def test_the_thread_leaves_signals_to_the_program(monkeypatch):
    masks = []

    class Woken:
        def wait(self, pause):
            masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    looks = threading.Thread(target=progress._look)
    for name, value in (("LINGER", 0.0), ("_woken", Woken()), ("_thread", looks),
                        ("may_call_from_any_thread", lambda: False)):  # fmt: skip
        monkeypatch.setattr(progress, name, value)
    looks.start()
    looks.join(10)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1} <= masks[0]
    assert signal.SIGSEGV not in masks[0]


#: After these, in a frame, CPython looks for signals.
HANDLES = {"CALL", "RESUME", "JUMP_BACKWARD", "CALL_FUNCTION_EX", "CALL_KW"}


class Interrupts:
    """Raise where Python would, at the n-th place in which a signal may be handled."""

    def __init__(self, wanted):
        self.left, self.before = wanted, {}

    def __call__(self, frame, event, given):
        if frame.f_code.co_filename != program.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            place = frame.f_lasti
            handles = self.before.get(frame) in HANDLES
            self.before[frame] = dis.opname[frame.f_code.co_code[place]]
            if handles:
                self.left -= 1
                if self.left == 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("verb", ["Start", "Wait", "Test", "late", "advance", "_open"])
def test_an_interrupt_leaves_no_lock_behind(verb):
    """Of the Python core: wherever it comes, another thread can have the lock. A round is not
    active unless it has begun."""
    given = {"advance": [program.ALL_CALLS], "_open": [1]}.get(verb, [])
    for wanted in range(200):  # at 0 nowhere: Python 3.12 traces no opcodes the first time
        request = stand_in(PythonRounds)()
        load_into(request, 2 * [[[call(lambda: None, in_start=False)]]])
        if verb not in ("Start", "_open"):
            request.Start()
        interrupts = Interrupts(wanted)
        sys.settrace(interrupts)
        try:
            getattr(request, verb)(*given)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        taken = []
        other = threading.Thread(target=lambda r=request, t=taken: t.append(
            r._lock.acquire(blocking=False)))
        other.start()
        other.join()
        assert taken == [True], f"{verb}, interrupted at place {wanted}"
        begun = request._unready or request._open_chains or request._done
        assert request._state != program.ACTIVE or begun, f"{verb}, interrupted at {wanted}"
        if interrupts.left > 0:
            assert wanted > 3
            return
    raise AssertionError("there are more places than were tried")
