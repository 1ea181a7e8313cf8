"""In a container as Docker makes it, with 64 MB of /dev/shm: memory of nodes is not from there."""

from __future__ import annotations

import re

import mpi_harness
import processes
import pytest

from onesided.collectives import methods

ROOT = mpi_harness.TESTS.parent
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
    passes(program, 2, str(MATRIX))


def test_the_readme_has_programs():
    assert len(README) >= 3


@pytest.mark.parametrize(("ranks", "words", "said"), [
    (2, "fft --shape 128 128 128 --dtype complex128 --comm all --iterations 1", methods()),
    (2, "fft --shape 192 192 160 --dtype complex128 --comm auto,p2p --iterations 1", ["p2p"]),
    (2, f"spmv {MATRIX} --comm all --iterations 3", methods()),
    (4, "heat --shape 1024 1024 --steps 4 --repeats 1",
     ["two-sided", "grid", "halo", "rma-fence"]),
], ids=["transforms", "large", "products", "heat"])  # fmt: skip
def test_commands_that_verify(ranks, words, said):
    out = passes("-m onesided.apps", ranks, *words.split(), "--verify")
    assert all(name in out for name in said), out
