"""In a container as Docker makes it, with 64 MB of /dev/shm: memory of nodes is not from there."""

from __future__ import annotations

import re

import mpi_harness
import processes
import pytest

from onesided.collectives import methods

ROOT = mpi_harness.TESTS.parent
PROGRAM = mpi_harness.TESTS / "programs" / "container.py"
MATRIX = ROOT / "apps" / "data" / "bcsstk13.mtx.gz"
README = dict(re.findall(
    r"^```python\n# (\w+\.py):[^\n]*\n(.*?)^```$", (ROOT / "README.md").read_text(),
    re.MULTILINE | re.DOTALL))  # fmt: skip


@pytest.fixture(autouse=True)
def small_shared_memory(monkeypatch):
    words, reason = processes.unshared("64m")
    if not words:
        pytest.skip(reason)
    plain = mpi_harness.command
    monkeypatch.setattr(mpi_harness, "command", lambda *given: [*words, *plain(*given)])


def passes(program, ranks, *words):
    outcome = mpi_harness.run(program, ranks, *words, timeout=280)
    assert outcome.kind == "pass", outcome.report()
    return outcome.stdout


@pytest.mark.parametrize("name", README)
def test_programs_of_the_readme(tmp_path, name):
    program = tmp_path / name
    program.write_text(README[name])
    passes(program, 4, str(MATRIX))


def test_the_readme_has_programs():
    assert len(README) >= 3


@pytest.mark.parametrize(("n", "ranks", "names"), [
    (64, 4, ()), (128, 4, ()), (256, 2, ("auto", "p2p"))])
def test_transforms(n, ranks, names):
    said = passes(PROGRAM, ranks, "transforms", str(n), *names)
    assert re.findall(r"@method (\S+)", said) == [*(names or methods())]


def test_products():
    assert re.findall(r"@method (\S+)", passes(PROGRAM, 4, "products")) == [*methods()]


def test_heat():
    words = ["--shape", "1024", "1024", "--steps", "4", "--repeats", "1", "--verify"]
    said = passes("-m onesided.apps", 4, "heat", *words)
    assert all(method in said for method in ("two-sided", "grid", "halo", "rma-fence")), said
