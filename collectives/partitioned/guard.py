"""A lock of a partitioned send, under which no call is made inside of another one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from onesided.collectives.errors import RequestError, in_forked_child

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Guard:
    """One thread at a time is inside. A signal handler, or a step, that has interrupted what is
    inside is not let in, and does not wait for it either.

    ``run`` has the whole call in one frame: an exception of a handler leaves nothing taken.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.busy = False  # to be looked at by who has the lock

    def run(self, act: Callable[..., Any], *arguments: Any, **names: Any) -> Any:
        """Local. What ``act`` returns, from the inside.

        Raises :class:`RequestError` in the middle of another call, and in a forked child, where
        the lock may be that of a thread that is not there.
        """
        if in_forked_child():
            raise RequestError("partitioned sends belong to the parent of this forked child")
        with self.lock:
            if self.busy:
                self.refuse_inside()
            self.busy = True
            try:
                return act(*arguments, **names)
            finally:
                self.busy = False

    def refuse_inside(self) -> None:
        """Local. Raise :class:`RequestError` in the middle of another call of this thread."""
        if self.busy and self.lock._is_owned():  # type: ignore[attr-defined]
            raise RequestError("a partitioned send cannot be used in the middle of a call of "
                               "it, by a signal handler or a step")

    def attempt(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Local. The same; None where it raises for itself, and where another thread is inside.

        Only the main thread waits for that one. What it has interrupted may be inside of this, and
        it may want a lock that the caller has: others must not wait for it then.
        """
        if threading.current_thread() is threading.main_thread():
            with self.lock:  # an exception of a handler leaves nothing behind that this has taken
                return None if self.busy else self.run(act, *arguments)
        if not self.lock.acquire(blocking=False):
            return None
        try:  # it may be busy all the same: a finalizer can come in the middle of a call
            return None if self.busy else self.run(act, *arguments)
        finally:
            self.lock.release()


def guarded(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """The method, run inside of the ``guard`` of its object."""

    @wraps(method)
    def inside(*arguments: Given.args, **names: Given.kwargs) -> Result:
        owner: Any = arguments[0]
        found: Result = owner.guard.run(method, *arguments, **names)
        return found

    return inside
