"""The harness itself: every way of going wrong must be seen, and nothing may stay behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import mpi_harness
import processes
import pytest

FAULTS = mpi_harness.TESTS / "programs" / "faults.py"


def test_a_good_program_passes():
    outcome = mpi_harness.run(FAULTS, 3, "none", timeout=30)
    assert outcome.kind == "pass", outcome.report()


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("exception", {"error"}),
        ("exit3", {"error"}),
        ("segfault", {"crash", "error"}),
        ("killed", {"crash", "error"}),
    ],
)
def test_a_fault_of_one_rank_ends_the_job(fault, kinds):
    outcome = mpi_harness.run(FAULTS, 2, fault, timeout=20)
    assert outcome.kind in kinds, outcome.report()
    assert outcome.returncode != 0


def test_an_exception_is_reported_with_its_words():
    outcome = mpi_harness.run(FAULTS, 2, "exception", timeout=20)
    assert "ArithmeticError: only here" in outcome.stderr, outcome.report()


@pytest.mark.parametrize("victim", ["0", "1"])
def test_a_rank_that_leaves_early_is_missed(victim):
    outcome = mpi_harness.run(FAULTS, 2, "leave", victim, timeout=10)
    assert outcome.kind != "pass", outcome.report()


def test_a_missing_token_is_a_failure_even_with_exit_code_0():
    text = "@done abc 0\n@done abc 2\n@done other 1\n"
    assert mpi_harness.classify(0, False, 3, "abc", text, "")[0] == "crash"
    text += "@done abc 1\n"
    assert mpi_harness.classify(0, False, 3, "abc", text, "")[0] == "pass"


def test_a_hang_gives_the_stacks_of_the_ranks_and_leaves_no_process():
    outcome = mpi_harness.run(FAULTS, 3, "hang", timeout=4)
    assert outcome.kind == "hang", outcome.report()
    assert outcome.stderr.count("faults.py") >= 3, outcome.report()
    assert "in fault" in outcome.stderr
    assert outcome.seconds < 15


def test_leaked_objects_are_seen():
    outcome = mpi_harness.run(FAULTS, 2, "request", timeout=30)
    if mpi_harness.mpi_name() == "openmpi":
        assert outcome.kind == "pass", "Open MPI has begun to report leaks: expect them"
        pytest.skip("Open MPI says nothing about objects left over at finalize")
    assert outcome.kind == "leak", outcome.report()
    outcome = mpi_harness.run(FAULTS, 2, "window", timeout=30)
    assert outcome.kind == "leak", outcome.report()


@pytest.mark.parametrize(
    "line",
    [
        "[1.2] [vm:1 :0] mpool.c:54 UCX  WARN  object 0x55 was not returned to mpool ucp_rkeys",
        "MPICH: freeing inactive persistent request ac000000 on communicator 44000000.",
        "MPICH: Builtin communicator 44000000 has pending 2 references.",
    ],
)
def test_leak_lines_of_mpich_are_known(line):
    assert mpi_harness.classify(0, False, 1, "t", "@done t 0\n", line)[0] == "leak"


def test_processes_that_a_rank_started_are_ended():
    mark = f"orphan{os.getpid()}"
    mpi_harness.run(FAULTS, 2, "orphan", env={"ONESIDED_MARK": mark}, timeout=4)
    assert not processes.marked(mark)


def test_a_job_ends_with_the_process_that_launched_it(tmp_path):
    program = (
        f"import sys; sys.path.insert(0, {str(mpi_harness.TESTS)!r}); import mpi_harness as h;"
        f"h.run({str(FAULTS)!r}, 2, 'hang', env={{'ONESIDED_MARK': 'MARK'}}, timeout=60)"
    ).replace("MARK'}", f"parent{os.getpid()}'}}")
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", program], env=env)
    mark = f"ONESIDED_MARK=parent{os.getpid()}"
    try:
        assert _until(lambda: len([p for p in processes.marked(mark) if processes.is_rank(p)]) == 2)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert _until(lambda: not processes.marked(mark))
    finally:
        parent.kill()
        processes.end(mark, parent.pid, patience=0)


def _until(condition, seconds=20.0):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if condition():
            return True
        time.sleep(0.1)
    return False


def run(ranks, *select, **settings):
    arguments = [word for text in select for word in ("--select", text)]
    module = str(mpi_harness.TESTS / "mpi" / "cases_harness.py")
    return mpi_harness.run(
        mpi_harness.TESTS / "run_cases.py", ranks, module, *arguments, **settings
    )


def test_parameters_are_combined_and_evaluated_in_the_job(run_cases):
    cases = run_cases("cases_harness", 3, select="case_parameters")
    assert [case["name"] for case in cases] == [
        f"case_parameters[letter={letter},number={number}]"
        for letter in "ab"
        for number in range(3)
    ]
    assert all(case["outcome"] == "passed" for case in cases)


def test_options_reach_the_case(run_cases):
    cases = run_cases(
        "cases_harness", 2, select=["options", "many"], options={"colour": "red=ish"}
    )
    assert [case["outcome"] for case in cases] == ["passed", "skipped"]
    assert "needs 3" in cases[1]["reason"]


def test_a_skip_that_not_all_ranks_want_is_a_failure():
    outcome = run(2, "skip_alone", timeout=20)
    assert outcome.kind == "error"
    assert outcome.cases[0]["outcome"] == "failed"
    assert "skipped only rank 0 wants to" in outcome.cases[0]["reason"]


def test_a_failing_case_is_reported_and_the_others_go_on():
    outcome = run(2, "fails_on_last", "after_failure", timeout=20)
    assert outcome.kind == "error", outcome.report()
    assert [case["outcome"] for case in outcome.cases] == ["failed", "passed"]
    assert "only the last rank fails" in outcome.cases[0]["reason"]
    assert "ONESIDED_SEED=" in outcome.stderr


def test_others_waiting_for_a_failed_rank_do_not_hide_its_error():
    outcome = run(2, "waits_for_failed", env={"ONESIDED_CASE_TIMEOUT": "3"}, timeout=30)
    assert outcome.kind == "error", outcome.report()
    assert "rank 0 does not come" in outcome.stderr


def test_a_case_that_hangs_prints_all_stacks():
    outcome = run(3, "case_hangs", env={"ONESIDED_CASE_TIMEOUT": "2"}, timeout=30)
    assert outcome.kind == "hang", outcome.report()
    assert outcome.stderr.count("in case_hangs") == 3, outcome.report()


def test_run_cases_fails_when_nothing_was_selected(run_cases):
    with pytest.raises(pytest.fail.Exception, match="no case"):
        run_cases("cases_harness", 1, select="case_that_is_not_there")


def test_run_cases_fails_with_the_words_of_the_failing_rank(run_cases):
    with pytest.raises(pytest.fail.Exception, match="only the last rank fails"):
        run_cases("cases_harness", 2, select="fails_on_last")


def test_run_cases_skips_when_every_case_does(run_cases):
    with pytest.raises(pytest.skip.Exception, match="needs 3"):
        run_cases("cases_harness", 2, select="many")


def test_seeds_are_stable_and_can_be_set(monkeypatch):
    from cases import Case

    monkeypatch.delenv("ONESIDED_SEED", raising=False)
    first = Case(_until, {"a": 1})
    assert first.seed == Case(_until, {"a": 1}).seed != Case(_until, {"a": 2}).seed
    monkeypatch.setenv("ONESIDED_SEED", "17")
    assert first.seed == 17


# -- the jobs that modules have in common ---------------------------------------------------------


@pytest.fixture
def job():
    """The outcome of some cases of cases_harness, in the same job as those before."""
    assert mpi_harness.close_servers() == []

    def ask(*select, env=None, timeout=20.0):
        words = [word for text in select for word in ("--select", text)]
        module = str(mpi_harness.TESTS / "mpi" / "cases_harness.py")
        return mpi_harness.cases_outcome([module, *words], 2, env or {}, timeout, 1)

    yield ask
    mpi_harness.close_servers()


def number_of(outcome):
    (case,) = outcome.cases
    assert outcome.kind == "pass", outcome.report()
    return case["parameters"]["job"]


def test_modules_share_a_job_of_the_same_ranks_and_environment(job):
    first = number_of(job("which_job"))
    assert number_of(job("which_job")) == first
    assert number_of(job("which_job", env={"ONESIDED_MARK": "1"})) != first
    assert mpi_harness.close_servers() == []
    assert number_of(job("which_job")) != first


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        ("fails_on_last", "error", "only the last rank fails"),
        ("case_hangs", "hang", "in case_hangs"),
        ("case_leaves", "crash", "case_leaves"),
    ],
)
def test_after_a_fault_the_next_module_has_a_new_job(job, case, kind, words):
    env = {"ONESIDED_CASE_TIMEOUT": "2"}
    first = number_of(job("which_job", env=env))
    outcome = job(case, env=env)
    assert outcome.kind == kind, outcome.report()
    assert words in outcome.report()
    assert number_of(job("which_job", env=env)) != first


def test_a_request_that_takes_too_long_gives_the_stacks(job):
    outcome = job("case_hangs", timeout=3.0)
    assert outcome.kind == "hang", outcome.report()
    assert outcome.stderr.count("in case_hangs") == 2, outcome.report()


def test_what_modules_leave_is_seen_at_the_end(job):
    assert job("leaks_a_request").kind == "pass"
    outcomes = mpi_harness.close_servers()
    if mpi_harness.mpi_name() == "openmpi":
        assert outcomes == [], "Open MPI has begun to report leaks: expect them"
        pytest.skip("Open MPI says nothing about objects left over at finalize")
    assert [outcome.kind for outcome in outcomes] == ["leak"]
    assert "leaks_a_request" in outcomes[0].reason
