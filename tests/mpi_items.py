"""Cases as pytest items: collected here, run on all ranks of an MPI job, reported here.

:class:`Outer` lives in the pytest that a person starts. It collects the functions ``case_*`` of
tests/mpi once per job of ``jobs.py``, and asks a job that is up (``servers``) for all chosen items
of one module at once. :class:`Inner` lives in a pytest on every rank of that job: it runs the items
one after the other, and the ranks agree on the outcome of each. An item that fails on one rank, or
whose ranks do not agree, fails. One that hangs or ends a rank fails with the stacks of all ranks,
and those after it get a new job.
"""

from __future__ import annotations

import faulthandler
import functools
import inspect
import itertools
import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jobs
import pytest
from _pytest.runner import runtestprotocol
from cases import CASE_MARK, FAILED_MARK, Deadline, covering, evaluated, say, short

ROOT = Path(__file__).resolve().parent.parent
#: Values of the parameters of a case by their names, and its job.
Row = dict[str, Any]
#: A test module that has one of these starts MPI jobs of its own.
STARTERS = {"servers", "mpi_harness", "commands", "cluster", "slurm", "released", "counting"}
#: Modules of the tests.
OWN = {path.stem for path in (ROOT / "tests").glob("*.py")}

for folder in (ROOT / "tests", ROOT / "tests" / "mpi"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


class Both:
    """What collection needs, the same on both sides."""

    def is_due(self, job: jobs.Job) -> bool:
        raise NotImplementedError

    def chosen(self, metafunc: pytest.Metafunc, rows: list[Row]) -> list[Row]:
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        function = metafunc.function
        if not function.__name__.startswith("case_"):
            return
        low, high = getattr(function, "ranks", (1, 1 << 30))
        named = jobs.JOBS.get(Path(metafunc.module.__file__).stem, ())
        fitting = [job for job in named if low <= job.ranks <= high]
        if not fitting:
            raise pytest.UsageError(f"no job of jobs.py has the ranks of {function.__name__}")
        fitting = [job for job in fitting if self.is_due(job)]
        choices = getattr(function, "choices", {})
        rows = [
            dict(zip(("job", *choices), (job, *row), strict=True))
            for job in fitting
            for row in itertools.product(*(evaluated(each, job) for each in choices.values()))
        ]
        rows = self.chosen(metafunc, rows)
        metafunc.fixturenames.append("job")
        metafunc.parametrize(("job", *choices), [tuple(row.values()) for row in rows],
                             ids=[id_of(row) for row in rows])  # fmt: skip

    @pytest.fixture
    def seed(self, request: pytest.FixtureRequest) -> int:
        given = os.environ.get("ONESIDED_SEED")
        return int(given) if given else seed_of(request.node)

    @pytest.fixture
    def options(self, request: pytest.FixtureRequest) -> dict[str, str]:
        return dict(request.node.callspec.params["job"].options)

    @pytest.fixture
    def comm(self, request: pytest.FixtureRequest) -> Any:
        return request.node.comm


def words_of(row: Row) -> list[str]:
    """The axes of a row, without the job: ``method=p2p``."""
    return [f"{key}={short(value)}" for key, value in row.items() if key != "job"]


def id_of(row: Row) -> str:
    """What stands behind the name of a case in that of an item: ``3-method=p2p-dtype=f4``."""
    return "-".join([str(row["job"]), *words_of(row)])


def case_name(function: Any, row: Row) -> str:
    """The name of a case without its job: ``case_ring[method=p2p,dtype=f4]``."""
    inside = ",".join(words_of(row))
    return function.__name__ + (f"[{inside}]" if inside else "")


def seed_of(item: Any) -> int:
    """The same on all ranks and jobs, and in every run."""
    return zlib.crc32(case_name(item.function, item.callspec.params).encode())


# -- in the pytest that a person starts -----------------------------------------------------------


def is_case(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and item.function.__name__.startswith("case_")


def starts_jobs(item: pytest.Item) -> bool:
    """Whether a test, a fixture of it, or a function of the tests that one of them calls, names
    anything of what starts MPI jobs."""
    fixtures = getattr(item, "_fixtureinfo", None)
    waiting = [each.func for defined in (fixtures.name2fixturedefs.values() if fixtures else ())
               for each in defined if each.scope != "session"]  # fmt: skip
    waiting.append(getattr(item, "function", None))
    seen: set[int] = set()
    while waiting:
        function = inspect.unwrap(waiting.pop() or print)
        if id(function) in seen or not hasattr(function, "__code__"):
            continue
        seen.add(id(function))
        if function.__module__ in STARTERS:
            return True
        names = set(_names(function.__code__))
        found = [function.__globals__.get(name) for name in names]
        for bound in [each for each in found if isinstance(each, functools.partial)]:
            found += [bound.func, *bound.args, *bound.keywords.values()]
        for module in [each for each in found if inspect.ismodule(each) and each.__name__ in OWN]:
            found += [getattr(module, name, None) for name in names]
        for value in found:
            if (getattr(value, "__module__", None) or getattr(value, "__name__", "")) in STARTERS:
                return True
            if str(getattr(value, "__module__", "")).removeprefix("tests.") in OWN:
                waiting += vars(value).values() if inspect.isclass(value) else [value]
    return False


def _names(code: Any) -> Iterator[str]:
    """Global names in a function and those inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from _names(constant)


def selected(function: Any, rows: list[Row]) -> list[Row]:
    """Of the rows of one function those that are due in a short run.

    Of the jobs that are alike each combination of parameters runs on one, all of them on the
    others. Where the job is ``thin``, each value of each parameter occurs at least once.
    """
    base = zlib.crc32(function.__name__.encode())
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        if not row["job"].full:
            by_case.setdefault(case_name(function, row), []).append(row)
    due: dict[str, list[Row]] = {}
    for number, group in enumerate(by_case.values()):
        alike = [row for row in group if row["job"].alike]
        alone = [row for row in group if not row["job"].alike]
        for row in [*alike[(base + number) % len(alike) :][:1], *alone] if alike else alone:
            due.setdefault("alike" if row["job"].alike else str(row["job"]), []).append(row)
    found = list[Row]()
    for group in due.values():
        thin = any(row["job"].thin for row in group)
        found += [group[place] for place in covering(group, base)] if thin else group
    return found


class Outer(Both):
    """Collects, chooses, asks and reports."""

    def __init__(self, full: bool) -> None:
        import servers

        self.full, self.servers = full, servers
        self.found: dict[str, dict[str, Any]] = {}
        self.queue: list[Any] = []
        #: Of modules: what the jobs select, and whether some case has it in its name.
        self.fits: dict[tuple[str, str], bool] = {}

    def is_due(self, job: jobs.Job) -> bool:
        return job.is_here(self.full)

    def chosen(self, metafunc: pytest.Metafunc, rows: list[Row]) -> list[Row]:
        """Those that become items; of a function without any pytest makes one that has no job."""
        function = metafunc.function
        module, names = metafunc.module.__name__, {case_name(function, row) for row in rows}
        for text in {text for row in rows for text in row["job"].select}:
            key = module, text
            self.fits[key] = self.fits.get(key, False) or any(text in name for name in names)
        rows = [row for row in rows if row["job"].takes(case_name(function, row))]
        if self.full:
            return rows
        late = metafunc.definition.get_closest_marker("full")
        return [] if late else selected(function, rows)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        for item in items:
            if is_case(item) or starts_jobs(item):
                item.add_marker("mpi")
        cases = [item for item in items if is_case(item)]
        due = [item for item in cases if isinstance(item.callspec.params["job"], jobs.Job)]
        for item in due:
            if item.callspec.params["job"].says_the_same:
                item.add_marker("one_mpi")
        config.hook.pytest_deselected(items=list(set(cases) - set(due)))
        due.sort(key=lambda item: item.callspec.params["job"].place)  # stable: modules stay
        items[:] = [item for item in items if not is_case(item)] + due

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        idle = sorted(key for key, fits in self.fits.items() if not fits)
        if idle:
            raise pytest.UsageError(f"jobs.py selects what no case has in its name: {idle}")
        self.queue = [item for item in session.items if is_case(item)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool | None:
        if not is_case(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reason = item.callspec.params["job"].missing()
        while not reason and item.nodeid not in self.found:
            self._ask(item)
        line = self.found.get(item.nodeid, {"outcome": "skipped", "reason": reason})
        for report in self._reports(item, line):
            item.ihook.pytest_runtest_logreport(report=report)
        if nextitem is None:
            bad = self.servers.SERVERS.close()
            if bad:
                text = "\n\n".join(outcome.report() for outcome in bad)
                report = _report(item, "teardown", "failed", text)
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _ask(self, item: Any) -> None:
        """The outcomes of this item and of those after it in its module and job, or of some."""
        job, path = item.callspec.params["job"], str(item.path)
        start = self.queue.index(item)
        batch = []
        for other in self.queue[start:]:
            if other.callspec.params["job"] is not job or str(other.path) != path:
                break
            batch.append(other.nodeid)
        most = item.config.getoption("maxfail") or 0
        request = self.servers.Request("items", (path, str(job), str(most), *batch))
        outcome = self.servers.SERVERS.ask(request, job.ranks, dict(job.env), job.limit, job.nodes)
        lines = {line["name"]: line for line in outcome.cases}
        self.found |= lines
        fails = any(line["outcome"] == "failed" for line in lines.values())
        left = [name for name in batch if name not in lines]
        if left and not (most and fails):
            blamed = left[0]
        elif outcome.kind != "pass" and not fails:  # something is left, or the end itself fails
            blamed = list(lines)[-1]
        else:
            return
        self.found[blamed] = {"name": blamed, "outcome": "failed", "reason": outcome.report()}

    def _reports(self, item: Any, line: dict[str, Any]) -> Iterator[pytest.TestReport]:
        outcome, text, more = line["outcome"], line["reason"], {}
        if outcome == "xfailed":
            outcome, more = "skipped", {"wasxfail": text}
        yield _report(item, "setup", "passed", "")
        yield _report(item, "call", outcome, text, line.get("seconds", 0.0), **more)
        yield _report(item, "teardown", "passed", "")


def _report(
    item: Any, when: Any, outcome: Any, text: str, seconds: float = 0.0, **more: Any
) -> pytest.TestReport:
    why: Any = text or None
    if outcome == "skipped" and not more:
        why = (str(item.path), item.location[1] or 0, f"Skipped: {text}")
    keywords = {key: 1 for key in item.keywords}
    now = time.time()
    return pytest.TestReport(
        item.nodeid, item.location, keywords, outcome, why, when, duration=seconds,
        start=now - seconds, stop=now, **more,
    )  # fmt: skip


# -- on the ranks ----------------------------------------------------------------------------------


class Inner(Both):
    """Runs the items whose names it is given, together with the other ranks."""

    def __init__(self, names: list[str], job: str, most: int) -> None:
        from mpi4py import MPI

        self.names, self.job, self.most, self.failures = names, job, most, 0
        self.wanted = {name.partition("::")[2] for name in names}
        self.world = MPI.COMM_WORLD.Dup()
        self.deadline = Deadline(float(os.environ.get("ONESIDED_CASE_TIMEOUT", "60")))

    def is_due(self, job: jobs.Job) -> bool:
        return str(job) == self.job and job.is_here(True)  # not the same of another MPI

    def chosen(self, metafunc: pytest.Metafunc, rows: list[Row]) -> list[Row]:
        def item(row: Row) -> str:  # pytest escapes what it is given
            text = id_of(row).encode("unicode_escape").decode()
            return f"{metafunc.function.__name__}[{text}]"

        return [row for row in rows if item(row) in self.wanted]

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.unregister(name="terminalreporter")
        faulthandler.enable()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = {item.nodeid: item for item in items}
        items[:] = [known[name] for name in self.names]

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self) -> Any:
        try:
            return (yield)
        except KeyboardInterrupt as error:  # which would end pytest on this rank alone
            raise AssertionError("interrupted") from error

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        began = time.perf_counter()
        threads = set(threading.enumerate())
        self.deadline.arm()
        item.comm = comm = self.world.Dup()
        outcome, reason = verdict(runtestprotocol(item, log=False, nextitem=nextitem))
        if outcome == "passed" and comm.Iprobe():
            outcome, reason = "failed", "a message that nobody has received"
        left = [thread.name for thread in set(threading.enumerate()) - threads
                if not thread.daemon]  # fmt: skip
        if outcome == "passed" and left:
            outcome, reason = "failed", f"threads are left: {left}"
        if outcome == "failed":
            say(f"{FAILED_MARK}rank {self.world.rank} of {self.world.size}, {item.nodeid}, "
                f"ONESIDED_SEED={seed_of(item)}\n{reason}", stream=2)  # fmt: skip
        everyone = self.world.allgather((outcome, reason))
        if outcome != "failed" and all(entry == everyone[0] for entry in everyone):
            comm.Free()
        self.deadline.disarm()
        outcome, reason = agreed(everyone)
        if self.world.rank == 0:
            seconds = round(time.perf_counter() - began, 4)
            line = {"name": item.nodeid, "outcome": outcome, "seconds": seconds, "reason": reason}
            say(CASE_MARK + json.dumps(line))
        self.failures += outcome == "failed"
        if self.most and self.failures >= self.most:
            item.session.shouldfail = "enough have failed"
        return True


def verdict(reports: list[pytest.TestReport]) -> tuple[str, str]:
    """Outcome and words of one rank's reports on an item."""
    for report in sorted(reports, key=lambda report: report.outcome != "failed"):
        if report.outcome == "failed":
            return "failed", report.longreprtext
        if report.outcome == "skipped" and hasattr(report, "wasxfail"):
            return "xfailed", report.wasxfail
        if report.outcome == "skipped":
            *_, why = report.longrepr if isinstance(report.longrepr, tuple) else ("", "", "")
            return "skipped", why.removeprefix("Skipped: ")
    return "passed", ""


def agreed(everyone: list[tuple[str, str]]) -> tuple[str, str]:
    """The outcome of an item from those of all ranks."""
    if any(how == "failed" for how, _ in everyone) or len(set(everyone)) > 1:
        parts = enumerate(everyone)
        return "failed", "\n".join(f"rank {rank}: {how} {why}" for rank, (how, why) in parts)
    return everyone[0]


def run(words: list[str]) -> int:
    """Collective. Run items of a module by their names; 1 where one of them failed."""
    path, job, most, *names = words
    inner = Inner(names, job, int(most))
    off = [f"-pno:{name}" for name in (
        "cacheprovider", "warnings", "threadexception", "unraisableexception", "faulthandler")]
    given = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "--noconftest", "-s"]
    code = pytest.main([*given, *off, path], plugins=[inner])
    if not inner.failures:
        inner.world.Free()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r} on this rank")
    return int(inner.failures > 0)
