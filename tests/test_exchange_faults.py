"""A rank that fails in the middle of an exchange ends the job; nothing hangs, nothing stays."""

from __future__ import annotations

import itertools

import mpi_harness
import pytest
import servers

PROGRAM = mpi_harness.TESTS / "programs" / "exchange_faults.py"
full = pytest.mark.full
TOLD = ["exception", "exception of mpi4py", "thread", "closed stdout", "foreign hook"]
FAULTS = [*TOLD, "memory", "exit", "SIGKILL", "SIGSEGV"]
PLACES = ["before init", "before start", "between", "after wait"]
METHODS = ["rma-fence", "rma-notify", "rma-pscw", "rma-lock-paper", "p2p"]
#: mpi4py's without abort_on_exception: the clean-up at exit must not wait for the others.
SHORT = [("exception", "between", "p2p"), ("exception", "before start", "rma-fence"),
         ("thread", "between", "rma-notify"), ("closed stdout", "between", "p2p"),
         ("foreign hook", "after wait", "p2p"), ("exit", "before init", "rma-notify"),
         ("exception of mpi4py", "after wait", "rma-notify"),
         ("SIGKILL", "between", "rma-notify")]  # fmt: skip
ALL = itertools.product(FAULTS, PLACES, METHODS)


def ends_badly(fault, place, method="rma-notify", ranks=3):
    outcome = mpi_harness.run(PROGRAM, ranks, fault, place, method, timeout=25)
    assert outcome.kind in ("error", "crash"), outcome.report()
    assert outcome.returncode != 0, outcome.report()
    return outcome


@pytest.mark.parametrize(("seconds", "method"), [
    ("", "rma-fence"), ("inf", "rma-notify"), ("0", "rma-notify"),
    pytest.param("-1", "rma-notify", marks=full)])
def test_a_pause_is_survived(seconds, method):
    """Watched for ever, or by nobody, where seconds are given."""
    env = {"ONESIDED_DEBUG": "1" * bool(seconds), "ONESIDED_DEBUG_SECONDS": seconds}
    run = mpi_harness.run if seconds else servers.run
    outcome = run(PROGRAM, 3, "pause", "between", method, env=env, timeout=40)
    assert outcome.kind == "pass", outcome.report()
    assert outcome.stdout.count("is through") == 3
    assert "nothing has moved" not in outcome.stderr


@pytest.mark.parametrize(("fault", "place", "method"), [
    *SHORT, *(pytest.param(*each, marks=full) for each in ALL if each not in SHORT)])
def test_a_rank_that_goes_wrong_ends_the_job(fault, place, method):
    said = ends_badly(fault, place, method).stderr
    assert ("only here" in said) == (fault in TOLD)
    assert ("the program has heard of" in said) == (fault == "foreign hook")


@full
@pytest.mark.parametrize("fault", ["SIGKILL", "SIGTERM", "memory"])
def test_one_of_many_ranks_goes_wrong(fault):
    ends_badly(fault, "between", ranks=32)


@full
def test_the_watchdog_names_a_rank_that_stands_still():
    """MPI does not see a rank that is stopped: the others say for whom they wait."""
    env = {"ONESIDED_DEBUG": "1", "ONESIDED_DEBUG_SECONDS": "5"}
    outcome = mpi_harness.run(
        PROGRAM, 32, "SIGSTOP", "between", "rma-notify", env=env, timeout=60)
    assert outcome.kind == "hang", outcome.report()
    assert "waits for data from rank 31" in outcome.stderr, outcome.report()


@pytest.mark.some(1)
@pytest.mark.parametrize("methods", [["rma-notify", "rma-lock"], ["p2p", "rma-fence"]])
def test_the_watchdog_tells_who_waits_for_whom(methods):
    env = {"ONESIDED_DEBUG": "1", "ONESIDED_DEBUG_SECONDS": "1"}
    outcome = mpi_harness.run(PROGRAM, 3, "stuck", *methods, env=env, timeout=60)
    assert outcome.kind == "pass", outcome.report()
    for rank in range(3):
        said = outcome.stderr.count(f"rank {rank}: nothing has moved for 1 s")
        assert said >= len(methods), outcome.report()
        for method in methods:
            assert f"rank {rank}: <{method} request" in outcome.stderr
    assert "exchange_faults.py" in outcome.stderr
    assert "active" in outcome.stderr
    known = "waits for data from rank 0 (has sent 2 of 3 rounds)"
    assert known in outcome.stderr or "rma-notify" not in methods
