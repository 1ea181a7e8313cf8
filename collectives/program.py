"""A round as a program: who runs its steps, and in which states.

``Start`` executes every chain of steps (:mod:`.steps`) as far as it goes; ``Wait``, ``Test`` and
:mod:`.progress` the rest. A RAISE, or a CALL that serves others, still ahead makes a request
*late*: some rank may wait for it. The thread of the compiled interpreter helps unless a CALL is on
the way to the last one.

Two interpreters run programs, with the same verbs, states and errors: the compiled one in
``core/``, and the one below, reference and fallback, which ``ONESIDED_CORE=python`` chooses.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.errors import RequestError, in_forked_child
from onesided.collectives.steps import (
    AWAIT,
    BLOCKS,
    CALL,
    COPY,
    GATHER,
    LATER,
    ONCE,
    RAISE,
    REDUCE,
    SERVES,
    STEPS,
    Chain,
    Plan,
    Step,
    _core,
    broken,
    lowered,
)

INACTIVE, ACTIVE, BROKEN, FREED = range(4)

#: Which calls :meth:`advance` may make: none, those that wait for no other rank, all of them; and,
#: inside, those of ``Start``.
NO_CALLS, LOCAL_CALLS, ALL_CALLS, _STARTING = range(4)

INSIDE = "used in the middle of a call of it, by a signal handler or a step"

#: Words of a board of a partitioned send, of 8 bytes each (:mod:`.memory`).
CREDIT, HEAD, TOLD, TAIL, ENTRIES, ROOM = 0, 8, 9, 16, 24, 64

#: What C and Python must agree on.
LAYOUT = STEPS | {
    name: globals()[name] for name in (
        "INACTIVE ACTIVE BROKEN FREED LOCAL_CALLS ALL_CALLS CREDIT HEAD TOLD TAIL ENTRIES ROOM"
    ).split()
}  # fmt: skip

#: Polls of the Python interpreter between two looks at everything else.
SPINS = 24


# -- the reference -------------------------------------------------------------------------------


class PythonCredit:
    """Local. The rounds of one receive memory, and the permission to write the next one into it.

    ``number`` counts the rounds that this rank has started, ``granted`` is the last one that its
    senders may write, ``busy`` tells that a round is active.
    """

    def __init__(self) -> None:
        self.number, self.granted, self.busy = 0, 0, 0
        self._cells: list[Any] = []

    def _connect(self, cells: Sequence[Any]) -> None:
        self._cells = list(cells)

    def grant(self) -> None:
        """Local. Senders may write the next round; a second call does nothing."""
        if self.granted == self.number:
            self._grant(self.number + 1)

    def _grant(self, number: int) -> None:
        self.granted = number
        fence()
        for cell in self._cells:
            cell[0] = number


class Hooks:
    """What the verbs ask of a request, which :mod:`.request` implements.

    Only where ``_hooked`` is set, around the verbs: ``_before_start``, ``_after_start``,
    ``_before_wait``, ``_before_test`` (whether Test may execute what waits for other ranks) and
    ``_after_wait``.
    """

    def _refuse(self, verb: str) -> None:
        raise RequestError(f"a request that cannot be {verb}")

    def _inactive(self, verb: str) -> Any:
        return None

    def _before_start(self) -> None: ...

    def _after_start(self) -> None: ...

    def _before_wait(self) -> None: ...

    def _before_test(self) -> bool:
        return True

    def _after_wait(self) -> None: ...

    def _drive(self) -> None: ...

    def _enlist(self) -> None: ...

    def _delist(self) -> None: ...

    def _breaks(self, error: BaseException | None) -> None: ...

    def _fill(self, status: MPI.Status | None) -> None: ...


class PythonRounds(Hooks):
    """The verbs of a request and the state between them."""

    def __init__(self) -> None:
        self._state, self._hooked, self._done, self._unready = INACTIVE, 0, 0, 0
        self._slot, self._number, self.rounds, self._variant, self._slots = 0, 0, 0, 0, 0
        self._lock = threading.RLock()  # an interrupt leaves none behind that "with" has taken
        self._listed = False
        self.in_start, self.in_wait, self.waiting, self.helped = 0.0, 0.0, 0.0, 0
        self._by_thread = self._by_python = 0
        self._needs_calls = self._blocks = self._calling = False
        self._opening = self._freeing = 0  # another call has it: it cannot be started meanwhile
        self._plans: list[Plan] = []
        self._answers: tuple[Any, ...] = ()
        self._credit: PythonCredit | None = None
        self._open_chains: list[int] = []
        self._here: list[int] = []

    # -- the verbs --------------------------------------------------------------------------------

    def check_start(self) -> None:
        if self._is_taken():
            self._refuse("started")
        self._check_program(0)

    def Start(self) -> None:
        """Begin a round, as MPI_Start does.

        Local where the method's rounds may start in any order. Where they have one order on all
        ranks it may wait for other ranks, as a collective call does.

        Raises
        ------
        RequestError
            Where a round is active, has been broken, or the request has been freed.

        Notes
        -----
        The send data must not be written to, and a receive array not read, until the round is
        complete.
        """
        self.check_start()
        began = time.perf_counter() if _profiling else 0.0
        if self._hooked:
            self._before_start()
        self._refuse_inside()
        with self._lock:
            if self._is_taken():
                self._refuse("started")  # another thread, or a handler, was faster
            with self._unbroken():
                self._reserve(0)
                self._state = ACTIVE  # when it has been counted: markers look at both
                self._launch()
                if self._hooked:
                    self._after_start()
                self._enlist_if_late()
            if began:
                self.in_start += time.perf_counter() - began

    def Wait(self, status: MPI.Status | None = None) -> Any:
        """Complete the round that is active, as MPI_Wait does.

        Parameters
        ----------
        status
            An MPI.Status that is to tell how the round ended.

        Returns
        -------
        The receive array, or the slot that holds the data until the round after the next one;
        None on a rank that receives nothing.

        Raises
        ------
        RequestError
            Where the round has been broken, a filled round is not ready, or the request has
            been freed.

        Notes
        -----
        It returns when this rank has received all that the round brings it, and its send data
        may be written to again; at once where no round is active.
        """
        if in_forked_child():
            self._refuse("waited for in a forked child, whose memory is its parent's")
        if self._state != ACTIVE or self._unready:
            value = self._inactive("waited for")
            self._fill(status)
            return value
        began = time.perf_counter() if _profiling else 0.0
        if self._hooked:
            self._before_wait()
        self._refuse_inside()
        with self._lock:
            if self._state == ACTIVE and self._unready:  # another thread has opened the next one
                self._inactive("waited for")
            if self._state == ACTIVE:
                with self._unbroken():
                    self._complete()
                    self._finish()
                if began:
                    self.in_wait += time.perf_counter() - began
            elif self._state != INACTIVE:  # the thread that had the lock has met an error
                self._refuse("waited for")
            value = self._answers[self._slot]  # before another thread can start or free it
        self._fill(status)
        return value

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Local. Go on with the active round, and tell whether it is complete, as MPI_Test does.

        Parameters
        ----------
        status
            An MPI.Status that is to tell how the round ended, where it has.

        Returns
        -------
        Whether the round is complete.

        Raises
        ------
        RequestError
            Where the round has been broken, or the request has been freed.

        Notes
        -----
        True means what :meth:`Wait` means, and where no round is active it is true at once. It
        waits for nobody, but in what MPI cannot test: the fence of a strictly ordered method off a
        node, of this request or of one that was started before it.
        """
        if in_forked_child():
            self._refuse("tested in a forked child, whose memory is its parent's")
        if self._state != ACTIVE or self._unready:
            self._inactive("tested")
            self._fill(status)
            return True
        began = time.perf_counter() if _profiling else 0.0
        level = ALL_CALLS if not self._hooked or self._before_test() else LOCAL_CALLS
        self._refuse_inside()
        done = self._unless_busy(lambda: self._tested(level))
        if done is None:  # another thread is at it, perhaps in a long copy
            self._drive()
            return False
        if began:
            self.in_wait += time.perf_counter() - began
        if done:
            self._fill(status)
        return done

    # -- for the request's own use ----------------------------------------------------------------

    def advance(self, level: int) -> bool:
        return not in_forked_child() and bool(self._unless_busy(lambda: self._advanced(level)))

    def late(self) -> bool:
        return self._unless_busy(self._is_late) is not False  # another thread is at it

    def stands(self) -> list[tuple[int, int]]:
        if self._state != ACTIVE or self._unready or not self._plans:
            return []
        return [(here, len(chain)) for here, chain in zip(self._here, self._plan(), strict=True)]

    def _open(self, chunks: int) -> None:
        self._check_program(1)
        self._refuse_inside()
        with self._lock:
            if self._is_busy():
                self._refuse("opened")
            with self._unbroken():
                self._unready = chunks  # before it is active, and looks as one that was started
                self._state = ACTIVE
                self._reserve(1)

    def _fill_chunk(self) -> None:
        inside = self._is_inside()
        with self._lock:  # several threads may tell it of theirs
            if self._state != ACTIVE or not self._unready or in_forked_child():
                self._refuse("told that a chunk is ready")
            if self._unready > 1:
                self._unready -= 1
                return
            if inside:
                self._refuse(INSIDE)
            self._unready = 0
            with self._unbroken():
                self._launch()
                self._enlist_if_late()

    def _break(self, error: BaseException) -> None:
        with self._lock:
            if self._state == ACTIVE:
                self._break_with(error)

    def _load(
        self, plans: Sequence[Plan], answers: tuple[Any, ...], credit: PythonCredit | None,
        keep: Any,
    ) -> None:  # fmt: skip
        slots = len(answers)
        if self._state != INACTIVE or slots < 1 or len(plans) not in (slots, 2 * slots):
            raise ValueError(f"{len(plans)} plans for {slots} slots")
        self._slots, self._plans, self._answers = slots, list(plans), answers
        self._credit, self._keep = credit, keep
        chains = [chain for plan in plans for chain in plan]
        self._needs_calls = any(_may_need_calls(chain) for chain in chains)
        calls = [step for chain in chains for step in chain if step[0] == CALL]
        self._blocks = any(step[2] & BLOCKS for step in calls)

    def _unload(self) -> None:
        self._refuse_inside()
        with self._lock:  # no other thread executes steps
            self._plans, self._answers, self._credit, self._keep = [], (), None, None
            self._open_chains, self._here = [], []

    def _retire(self) -> None:
        self._state = FREED

    def _count_with(self, credit: PythonCredit) -> None:
        self._credit = credit

    # -- inside -----------------------------------------------------------------------------------

    def _is_busy(self) -> bool:
        """It is active, or another one into the same memory, or it can be no more."""
        return self._state != INACTIVE or bool(self._credit is not None and self._credit.busy)

    def _is_taken(self) -> bool:
        """The same of a round that begins by Start."""
        return bool(self._is_busy() or self._opening or self._freeing)

    def _is_inside(self) -> bool:
        owned: bool = self._lock._is_owned()  # type: ignore[attr-defined]
        return owned

    def _refuse_inside(self) -> None:
        """A signal handler, or a step, has called a verb of the request that it interrupts."""
        if self._is_inside():
            self._refuse(INSIDE)

    def _unless_busy(self, act: Callable[[], bool]) -> bool | None:
        """What ``act`` says; None where another thread, or what it interrupts, has the lock."""
        if self._is_inside():
            return None
        try:  # an interrupt may come as soon as the lock is taken
            return act() if self._lock.acquire(blocking=False) else None
        finally:
            try:
                self._lock.release()
            except RuntimeError:
                pass  # it has not been taken

    def _tested(self, level: int) -> bool:
        if self._state == INACTIVE:
            return True
        if self._state != ACTIVE:
            self._refuse("tested")
        if self._unready:  # another thread has opened the next one
            self._inactive("tested")
        with self._unbroken():
            done = bool(self._done) or self._pass(level)
            if not done:
                self._drive()
                done = self._pass(level)
            if done:
                self._finish()
        return done

    def _advanced(self, level: int) -> bool:
        if self._state != ACTIVE or self._done or self._unready:
            return False
        before = sum(self._here)
        with self._unbroken():
            self._pass(level)
        return sum(self._here) > before

    @contextlib.contextmanager
    def _unbroken(self) -> Iterator[None]:
        """An exception breaks the round; the caller has the lock."""
        try:
            yield
        except BaseException as error:
            self._break_with(error)
            raise

    def _break_with(self, error: BaseException) -> None:
        if self._state in (BROKEN, FREED):  # by an earlier one, or by another thread's call
            return
        self._state, self._listed = BROKEN, False
        self._breaks(error)

    def _check_program(self, variant: int) -> None:
        if in_forked_child():
            self._refuse("started in a forked child, whose memory is its parent's")
        if self._slots < 1 or len(self._plans) < (variant + 1) * self._slots:
            raise RuntimeError("the request has no program for such a round")

    def _plan(self) -> Plan:
        return self._plans[self._variant * self._slots + self._slot]

    def _reserve(self, variant: int) -> None:
        self._slot, self._variant = self.rounds % self._slots, variant
        self.rounds += 1
        self._done = 0
        self._number = self.rounds
        self._open_chains, self._here = [], []
        credit = self._credit
        if credit is not None:
            credit.busy = 1
            credit.number += 1
            self._number = credit.number
            if credit.granted < credit.number:
                credit._grant(credit.number)

    def _launch(self) -> None:
        count = len(self._plan())
        self._open_chains, self._here = list(range(count)), [0] * count
        self._pass(_STARTING)

    def _pass(self, level: int) -> bool:
        plan = self._plan()
        if self._open_chains:
            self._open_chains = [i for i in self._open_chains if not self._run(plan[i], i, level)]
        self._done = int(not self._open_chains)
        return bool(self._done)

    def _run(self, chain: Chain, index: int, level: int) -> bool:
        """Execute a chain as far as it goes; true at its end."""
        number, here = self._number, self._here[index]
        for step in chain[here:]:
            kind = step[0]
            if kind == COPY:
                step[1][...] = step[2]
            elif kind == GATHER:
                np.take(step[2], step[3], axis=0, out=step[1], mode="clip")
            elif kind == REDUCE:
                with np.errstate(all="ignore"):
                    step[5](step[2], step[3], out=step[1])
            elif kind == RAISE:
                fence()
                step[1][0] = number * step[2] + step[3]
            elif kind == AWAIT:
                if step[1][0] < number * step[2] + step[3]:
                    return False
                fence()
            elif not self._is_allowed(step[2], level) or self._call(step[1]) is False:
                return False
            self._here[index] += 1
        return True

    def _is_allowed(self, flags: int, level: int) -> bool:
        forbidden = {LOCAL_CALLS: BLOCKS, ALL_CALLS: BLOCKS * (self._freeing > 1), _STARTING: LATER}
        return level != NO_CALLS and not flags & forbidden[level]

    def _call(self, function: Callable[[], Any]) -> Any:
        self._calling = True
        try:
            return function()
        finally:
            self._calling = False

    def _complete(self) -> None:
        if self._done or self._pass(ALL_CALLS):
            return
        began = time.perf_counter() if _profiling else 0.0
        while not self._pass(ALL_CALLS):
            self._poll()
            if self._state != ACTIVE:  # another thread has freed it
                self._refuse("waited for")
        if began:
            self.waiting += time.perf_counter() - began

    def _poll(self) -> None:
        plan = self._plan()
        counters = any(plan[i][self._here[i]][0] == AWAIT for i in self._open_chains)
        for _ in range(SPINS):
            if self._pass(NO_CALLS if counters else ALL_CALLS):
                return
        self._drive()
        os.sched_yield()

    def _finish(self) -> None:
        """All steps of a round have been executed: what follows, and the request becomes
        inactive. A step may have given the round up."""
        if self._state == BROKEN:
            self._refuse("completed")
        if self._listed:
            self._listed = False
            self._delist()
        if self._hooked:
            self._after_wait()
        if self._state == ACTIVE:
            self._state = INACTIVE
        if self._credit is not None:
            self._credit.busy = 0

    def _is_late(self) -> bool:
        if self._state != ACTIVE or self._done or self._unready:
            return False
        plan = self._plan()
        return any(_serves(step) for i in self._open_chains for step in plan[i][self._here[i] :])

    def _enlist_if_late(self) -> None:
        if not self._listed and self._is_late():
            self._listed, self._by_python = True, self._by_thread
            self._enlist()


def _serves(step: Step) -> bool:
    return bool(step[0] == RAISE or (step[0] == CALL and step[2] & SERVES))


def _may_need_calls(chain: Chain) -> bool:
    """Whether a late round may need a call of this chain: one up to the last step that others wait
    for, which may not have been made in Start."""
    serving = [i for i, step in enumerate(chain) if _serves(step)]
    stops = False
    for step in chain[: serving[-1] + 1] if serving else ():
        is_call = step[0] == CALL
        stops |= step[0] == AWAIT or (is_call and step[2] & (ONCE | LATER) != ONCE)
        if is_call and stops:
            return True
    return False


#: Times of every round are added up.
_profiling = False


def profile_rounds(on: bool) -> None:
    """Local. Whether the times of every round are added up from now on."""
    global _profiling
    _profiling = on
    if _core is not None:
        _core.profile(on)


_fence_lock = threading.RLock()  # a signal handler may come between


def fence() -> None:
    """Local. Everything before it in this thread is visible before anything after it.

    A lock that is given back and taken again: a release that no later acquire may overtake.
    """
    with _fence_lock:
        pass
    with _fence_lock:
        pass


# -- which one runs ------------------------------------------------------------------------------

#: Environment variable that chooses the interpreter: ``python``, or whatever is there.
VARIABLE = "ONESIDED_CORE"

if any(getattr(_core, name, None) != value for name, value in LAYOUT.items() if _core is not None):
    raise ImportError(
        "the compiled core is that of another version; install the package again",
        name="onesided.collectives._core",
    )

#: Whether the compiled interpreter is there, and wanted.
COMPILED = _core is not None and os.environ.get(VARIABLE, "").strip().lower() != "python"

if COMPILED and not TYPE_CHECKING:
    Rounds, CreditCells = _core.Rounds, _core.Credit
else:
    Rounds = PythonRounds
    CreditCells = PythonCredit


def interpreter() -> str:
    """Local. Which interpreter runs rounds, and why, in words.

    Examples
    --------
    >>> interpreter().split()[0] in ("compiled", "Python", "the")
    True
    """
    if COMPILED:
        return "compiled"
    if _core is not None:
        return f"Python ({VARIABLE}=python)"
    if broken:
        return f"Python (the compiled core cannot be loaded: {broken})"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "Python (the compiled one relies on the global interpreter lock)"
    return "Python (the package was installed without a compiler)"


def stop_thread() -> None:
    """Local. At exit: end the core's thread, which looks at memory that is about to be unmapped."""
    while _core is not None and _core.stop_thread():
        time.sleep(0.0005)


def load(
    rounds: Any, plans: Iterable[Plan], answers: Sequence[Any], credit: Any = None
) -> None:
    """Local. Give a request its programs: by slot an answer and a plan, then the plans of filled
    rounds."""
    given = list(plans)
    if COMPILED:
        keep = [step for plan in given for chain in plan for step in chain]
        compiled = [[[s for step in chain for s in lowered(step)] for chain in plan]
                    for plan in given]
        rounds._load(compiled, tuple(answers), credit, keep)
    else:
        rounds._load(given, tuple(answers), credit, given)
