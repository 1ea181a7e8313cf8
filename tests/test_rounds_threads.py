"""A round that two threads are at: the one that waits, and the progress thread; no MPI."""

from __future__ import annotations

import threading
import time

import pytest

from onesided.collectives.errors import RequestError
from onesided.collectives.program import CALL, PythonRounds, _core

KINDS = [PythonRounds]
if _core is not None:
    KINDS.append(_core.Rounds)


@pytest.mark.parametrize("verb", ["Wait", "Test"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_another_thread_meets_is_not_taken_for_the_end(kind, verb):
    inside, go_on = threading.Event(), threading.Event()

    class Request(kind):
        def _refuse(self, word):
            raise RequestError(word)

        def _inactive(self, word):
            return self._refuse(word)

        def _breaks(self, error):
            pass

        def _enlist(self):
            pass

        def _drive(self):
            pass

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

    request = Request()
    request._load(1, [[[(CALL, step, True)]]], (None,), None, None)
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
