"""The README's examples run as they stand there."""

from __future__ import annotations

import re

import mpi_harness
import pytest
import servers

README = (mpi_harness.TESTS.parent / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n# (\w+\.py):.*?\n(.*?)```", README, re.DOTALL)
MATRIX = mpi_harness.TESTS.parent / "apps" / "data" / "bcsstk13.mtx.gz"


@pytest.mark.parametrize(("name", "text"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_an_example(tmp_path, name, text):
    program = tmp_path / name
    program.write_text(text)
    outcome = servers.run(program, 4, str(MATRIX), timeout=90)
    assert outcome.kind == "pass", outcome.report()


def test_there_is_an_example_of_each_layer():
    exchanges = ["ring.py", "norms.py", "broadcast.py", "pieces.py", "halo.py"]
    names = [*exchanges, "poisson.py", "power.py", "solve.py"]
    assert [name for name, _ in PROGRAMS] == names


def test_every_method_is_described():
    from onesided.collectives import methods, partitioned_methods

    for name in (*methods(), *methods("broadcast"), *partitioned_methods()):
        assert f"`{name}`" in README
