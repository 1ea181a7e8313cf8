"""The harness itself: every way of going wrong must be seen, and nothing may stay behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import mpi_harness
import processes
import pytest
import servers
from cases import CASE_MARK, covering
from jobs import JOBS

MODULE = mpi_harness.TESTS / "programs" / "harness_items.py"
FAULTS = mpi_harness.TESTS / "programs" / "faults.py"
pytestmark = pytest.mark.mpi  # some start a pytest that starts the jobs


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("fault", "victim", "words"),
    [
        ("exception", 1, "ArithmeticError: only here"),
        ("exit3", 1, ""),
        ("segfault", 1, ""),
        ("killed", 1, ""),
        ("leave", 0, ""),
        ("leave", 1, ""),
    ],
)
def test_a_fault_of_one_rank_is_seen(fault, victim, words):
    outcome = mpi_harness.run(FAULTS, 2, fault, str(victim), timeout=20)
    assert outcome.kind in (("error",) if words else ("error", "crash", "hang")), outcome.report()
    assert words in outcome.stderr, outcome.report()
    assert fault == "leave" or outcome.returncode != 0


def test_a_missing_token_is_a_failure_even_with_exit_code_0():
    text = "@done abc 0\n@done abc 2\n@done other 1\n"
    assert mpi_harness.classify(0, False, 3, "abc", text, "")[0] == "crash"
    text += "@done abc 1\n"
    assert mpi_harness.classify(0, False, 3, "abc", text, "")[0] == "pass"


def test_a_line_that_a_dying_job_cut_off_is_not_a_case():
    line = CASE_MARK + '{"name": "one"}'
    assert mpi_harness.cases_in(f"{line}\n{line[:-4]}") == [{"name": "one"}]


@pytest.mark.parametrize(("ranks", "nodes"), [(3, 1), (4, 2)])
def test_a_hang_gives_the_stacks_of_the_ranks_and_leaves_no_process(request, ranks, nodes):
    if nodes > 1:
        request.getfixturevalue("virtual_nodes")
    job = mpi_harness.Job(FAULTS, ranks, "hang", nodes=nodes)
    begun = _until(lambda: job.streams()[0].count("begins") == ranks)
    outcome = job.end(0.5)
    assert begun, outcome.report()
    assert outcome.kind == "hang", outcome.report()
    assert outcome.stderr.count("in fault") == ranks, outcome.report()
    assert not processes.marked(job.token)


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
    job = mpi_harness.Job(FAULTS, 2, "orphan", env={"ONESIDED_MARK": mark})

    def lives():
        words = [Path("/proc", str(pid), "comm") for pid in processes.marked(mark)]
        return any(path.exists() and path.read_text() == "sleep\n" for path in words)

    lived = _until(lives)
    outcome = job.end(4)
    assert lived, outcome.report()
    assert outcome.kind in ("pass", "hang"), outcome.report()  # the launcher may wait for it
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


# -- items ----------------------------------------------------------------------------------------


def test_a_covering_has_all_values_and_is_small():
    rows = [{"a": a, "b": b, "c": c} for a in range(5) for b in "xyz" for c in (True, False)]
    places = covering(rows, 7)
    assert places == covering(rows, 7)
    for key in "abc":
        assert {rows[place][key] for place in places} == {row[key] for row in rows}
    assert len(places) <= 7


def test_every_module_of_cases_has_jobs():
    modules = {path.stem for path in (mpi_harness.TESTS / "mpi").glob("cases_*.py")}
    assert JOBS.keys() - {"harness_items"} == modules


def pytest_on_items(*words):
    """What a pytest says that is started on harness_items."""
    env = {**os.environ, "ONESIDED_CASE_TIMEOUT": "3"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(MODULE), *words]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=200
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def said():
    """Of a run of good items on two and three ranks, and of bad ones on two."""
    good = "parameters options many"
    bad = "fails_on_last after_failure skip_alone waits_for hangs case_leaves exits known mended"
    chosen = f"{' or '.join(good.split())} or [2] and ({' or '.join(bad.split())})"
    code, text = pytest_on_items("-v", "-k", chosen)
    assert code == 1, text
    return text


def test_good_items_pass_on_their_jobs(said):
    for letter in "ab":
        for size in (2, 3):
            for number in range(size):
                name = f"case_parameters[{size}-letter={letter}-number={number}] PASSED"
                assert name in said
    assert re.findall(r"case_options\[(\d)\] PASSED", said) == ["2", "3"]
    assert "case_many[3] PASSED" in said
    assert "case_many[2]" not in said


def test_each_way_of_failing_fails_its_item_alone(said):
    found = dict(re.findall(r"::case_(\w+)\[2\] (PASSED|FAILED|XFAIL)", said))
    assert found == {
        "options": "PASSED", "after_failure": "PASSED", "known_to_fail": "XFAIL",
        "skip_alone": "FAILED", "fails_on_last": "FAILED", "waits_for_failed": "FAILED",
        "hangs": "FAILED", "exits": "FAILED", "mended": "FAILED", "leaves": "FAILED",
        "leaves_a_message": "FAILED", "leaves_a_thread": "FAILED",
    }  # fmt: skip
    assert "only the last rank fails" in said
    assert "rank 1: passed" in said, "a skip that not all ranks want is a failure"
    assert "rank 0 does not come" in said
    assert said.count("in case_hangs") >= 2, "the stacks of both ranks"
    assert "a message that nobody has received" in said
    assert "threads are left: ['forgotten']" in said
    assert "XPASS(strict)" in said


@pytest.mark.one_mpi
@pytest.mark.parametrize(("case", "word"), [
    ("breaks_the_end", ""), ("raises_where_nobody_sees", "in a finalizer")])  # fmt: skip
def test_an_item_whose_end_goes_wrong_fails(case, word):
    code, text = pytest_on_items("-k", f"{case}[2]")
    assert code == 1, text
    assert word in text


@pytest.mark.one_mpi
def test_a_run_that_is_to_end_at_the_first_failure_does():
    code, text = pytest_on_items("-x", "-v", "-k", "[2] and (fails_on_last or after_failure)")
    assert code == 1
    assert "after_failure" not in text


# -- the jobs that modules have in common ---------------------------------------------------------


@pytest.fixture(scope="module")
def jobs():
    """Jobs of this file alone."""
    jobs = servers.Servers()
    yield jobs
    jobs.close()


@pytest.fixture
def job(jobs):
    """The outcome of an item of harness_items, in the same job as those before."""

    def ask(case, env=None, timeout=20.0):
        name = f"tests/programs/harness_items.py::case_{case}[2]"
        request = servers.Request("items", (str(MODULE), "2", "0", name))
        return jobs.ask(request, 2, env or {}, timeout)

    return ask


def number_of(outcome):
    (case,) = outcome.cases
    assert outcome.kind == "pass", outcome.report()
    return case["reason"]


def test_modules_share_a_job_of_the_same_ranks_and_environment(job, monkeypatch):
    """The one that was not asked for longest makes room."""
    first = number_of(job("which_job"))
    assert number_of(job("which_job", env={"ONESIDED_DEBUG": "1"})) == first, "read when needed"
    other = number_of(job("which_job", env={"ONESIDED_CORE": "python"}))
    assert other != first
    assert number_of(job("which_job")) == first
    assert number_of(job("which_job", env={"ONESIDED_CORE": "python"})) == other
    monkeypatch.setattr(servers, "MOST_RANKS", 3)
    last = number_of(job("which_job", env={"MPI_COLOUR": "red"}))
    assert last not in (first, other)
    assert number_of(job("which_job")) != first


def test_what_belongs_to_the_process_is_put_back(job):
    assert job("changes_the_process").kind == "pass"
    outcome = job("sees_the_process_as_it_was")
    assert outcome.kind == "pass", outcome.report()


def test_programs_run_in_a_job_that_is_up(job, jobs):
    first = number_of(job("which_job"))
    for word, code in [("none", 0), ("exit_together", 3), ("exit_apart", 3)]:
        outcome = jobs.ask(servers.Request("program", (str(FAULTS), word)), 2, {}, 20.0)
        assert outcome.returncode == code, outcome.report()
        assert outcome.kind == ("error" if code else "pass")
        assert "@done" not in outcome.stdout + outcome.stderr
        assert (number_of(job("which_job")) == first) == (word != "exit_apart")
    outcome = jobs.ask(servers.Request("program", (str(FAULTS), "exception")), 2, {}, 20.0)
    assert outcome.kind in ("error", "crash"), outcome.report()
    assert "ArithmeticError: only here" in outcome.stderr


def test_a_request_that_prints_nothing_for_too_long_gives_the_stacks(job):
    number_of(job("which_job"))
    outcome = job("hangs", timeout=3.0)
    assert outcome.kind == "hang", outcome.report()
    assert outcome.stderr.count("in case_hangs") == 2, outcome.report()


def test_what_modules_leave_is_seen_at_the_end(job, jobs):
    for case in ("which_job", "leaks_a_request"):
        assert job(case).kind == "pass"
    outcomes = [found for found in jobs.close() if "leaks_a_request" in found.reason]
    if mpi_harness.mpi_name() == "openmpi":
        assert outcomes == [], "Open MPI has begun to report leaks: expect them"
        pytest.skip("Open MPI says nothing about objects left over at finalize")
    assert [outcome.kind for outcome in outcomes] == ["leak"]
    culprits = outcomes[0].reason.partition("It is left by\n")[2].splitlines()
    assert len(culprits) == 1
    assert "leaks_a_request" in culprits[0]
