"""Threads that work together in rounds."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from onesided.apps.bench.team import Team


def fail():
    raise ZeroDivisionError("in a thread")


def test_every_work_has_a_thread_and_answers_come_in_order():
    before = threading.active_count()
    with closing(Team(4)) as team:
        assert threading.active_count() == before + 3
        for count in (4, 2, 1, 3):
            names = []

            def work(number, names=names):
                names.append(threading.current_thread())
                time.sleep(0.001 * number)
                return number

            order = [lambda n=n: work(n) for n in reversed(range(count))]
            assert team.run(order) == list(reversed(range(count)))
            assert len(set(names)) == count
            assert threading.main_thread() in names
    assert threading.active_count() == before
    team.close()


def test_all_threads_work_at_the_same_time():
    with closing(Team(3)) as team:
        for _ in range(50):
            seen = []
            meeting = threading.Barrier(3, timeout=20)

            def work(seen=seen, meeting=meeting):
                meeting.wait()
                seen.append(threading.get_ident())

            team.run([work] * 3)
            assert len(set(seen)) == 3


def test_a_team_needs_a_thread_for_every_work():
    with closing(Team(1)) as team:
        assert team.run([]) == []
        with pytest.raises(ValueError, match="2 works for 1 threads"):
            team.run([float, float])


@pytest.mark.parametrize("failing", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_an_error_waits_for_the_other_threads_and_the_team_goes_on(failing):
    with closing(Team(3)) as team:
        for _ in range(3):
            done = []

            def slow(done=done):
                time.sleep(0.01)
                done.append(None)

            works = [fail if number in failing else slow for number in range(3)]
            with pytest.raises(ZeroDivisionError, match="in a thread"):
                team.run(works)
            assert len(done) == 3 - len(failing), "a thread was still at work"
            assert team.run([lambda: 1]) == [1]
            assert team.run([float, int, str]) == [0.0, 0, ""]
