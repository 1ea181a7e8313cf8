"""Tries the installed wheel with other MPIs and other Pythons than those of ``make test``.

    python tests/environments.py debian-openmpi intel python3.12    # or: all

The wheel is built once. Each environment gets it with an mpi4py for its MPI, then runs ``onesided
doctor`` (every collective by every method), README's commands, the programs of its pages, and the
rows of the conformance table that ask for data. What is not installed on this machine is named and
counts as a failure unless ``--skip-missing`` is given. The logs stay in ``build/environments``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "environments"
MATRIX = str(ROOT / "apps" / "data" / "bcsstk13.mtx.gz")
#: Of ONESIDED's own settings, what leaves the user's caches alone.
QUIET = {"ONESIDED_WISDOM": "off", "ONESIDED_TUNING": "off", "OMP_NUM_THREADS": "1"}
TABLE = ["tests/mpi/cases_table.py", "-m", "mpi", "-k", "case_data[2-cell"]
PAGES = ["tests/test_docs.py", "-k", "test_a_program_of_a_page"]


@dataclass(frozen=True)
class Environment:
    """An MPI and a Python: what is installed there, and which launcher of the machine it has."""

    packages: tuple[str, ...] = ()
    launcher: str = ""  # on PATH; else the one that a package brings
    compiler: str = ""  # builds mpi4py from its sources; in the environment or on PATH
    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)
    compiled: bool = True

    def missing(self) -> str:
        """The command that it needs and this machine lacks."""
        needed = [self.python, self.launcher, "" if self.packages else self.compiler]
        return next((name for name in needed if name and not shutil.which(name)), "")


ENVIRONMENTS = {
    "debian-openmpi": Environment(
        launcher="mpiexec.openmpi", env={"MPI4PY_MPIABI": "openmpi", "OMPI_MCA_osc": "^ucx"}
    ),
    "debian-mpich": Environment(launcher="mpiexec.mpich", compiler="mpicc.mpich"),
    "intel": Environment(("impi-rt",)),
    "standard-abi": Environment(("mpich>=5,<6",), compiler="mpicc_abi"),
    "python3.12": Environment(("mpich>=5,<6",), python="python3.12"),
    "python3.13": Environment(("mpich>=5,<6",), python="python3.13"),
    "not-compiled": Environment(("mpich>=5,<6",), compiled=False),
}


class Failed(Exception):
    """A step of an environment ended with an error; the log says which."""


@dataclass
class Trial:
    """An environment on this machine while it is tried: its folder, its log, its variables."""

    name: str
    of: Environment
    wheel: Path

    def __post_init__(self) -> None:
        self.folder = FOLDER / self.name
        self.bin = self.folder / "bin"
        self.log = FOLDER / f"{self.name}.log"
        self.log.unlink(missing_ok=True)
        self.env = os.environ | QUIET | dict(self.of.env)
        self.env["PATH"] = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        self.env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(self, *words: str, limit: float = 900) -> None:
        """A command in this environment; its words go to the log."""
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(words)}\n")
            log.flush()
            try:
                done = subprocess.run(
                    words, env=self.env, cwd=ROOT, stdout=log, stderr=log, timeout=limit
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Failed(str(error)) from error
        if done.returncode:
            raise Failed(f"{' '.join(words)[:90]} ended with {done.returncode}")

    def pip(self, *words: str) -> None:
        self.run(str(self.bin / "python"), "-m", "pip", "install", "-q", *words)

    def install(self) -> None:
        """The environment anew, with the MPI, an mpi4py for it, and the wheel."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.run(self.of.python, "-m", "venv", str(self.folder))
        if self.of.packages:
            self.pip(*self.of.packages)
        if self.of.launcher:
            launcher = shutil.which(self.of.launcher)
            (self.bin / "mpiexec").symlink_to(str(launcher))
        if self.of.compiler:
            beside = self.bin / self.of.compiler
            self.env["MPICC"] = str(beside) if beside.exists() else self.of.compiler
            # unoptimized: a quarter of the time, and nothing here is timed
            self.env["CFLAGS"] = "-O0"
            self.pip("--no-binary", "mpi4py", "mpi4py>=4.1")
        self.pip(f"{self.wheel}[test]")
        if not self.of.compiled:
            for path in self.folder.rglob("onesided/**/*.so"):
                path.unlink()

    def check(self) -> None:
        """What a stranger would run first, then the rows of the table."""
        onesided, python = str(self.bin / "onesided"), str(self.bin / "python")
        self.run(onesided, "doctor", "--ranks", "2")
        self.run(onesided, "fft", "--shape", "32", "32", "32", "--comm=rma-fence", "--iterations",
                 "5", "--verify", "--ranks", "4")  # fmt: skip
        self.run(onesided, "spmv", MATRIX, "--comm", "all", "--iterations", "5", "--verify",
                 "--ranks", "3")  # fmt: skip
        for tests in (PAGES, TABLE):
            self.run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, limit=1800)


def build_wheel() -> Path:
    """The wheel of this checkout, made from the sdist, as the index would get it."""
    shutil.rmtree(FOLDER / "wheel", ignore_errors=True)
    words = [sys.executable, "-m", "build", "-o", str(FOLDER / "wheel"), str(ROOT)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return next((FOLDER / "wheel").glob("*.whl"))


def main() -> int:
    """Tries the environments that are named and says how each did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="+", choices=[*ENVIRONMENTS, "all"], metavar="NAME",
                        help=", ".join([*ENVIRONMENTS, "all"]))  # fmt: skip
    parser.add_argument("--skip-missing", action="store_true", help="what is not here is skipped")
    options = parser.parse_args()
    names = list(ENVIRONMENTS) if "all" in options.names else options.names
    FOLDER.mkdir(parents=True, exist_ok=True)
    wheel, failed = build_wheel(), 0
    for name in names:
        began, trial = time.monotonic(), Trial(name, ENVIRONMENTS[name], wheel)
        if missing := trial.of.missing():
            outcome = f"skipped: {missing} is not installed"
            failed += not options.skip_missing
        else:
            try:
                trial.install()
                trial.check()
                outcome = "passed"
            except Failed as error:
                outcome, failed = f"FAILED: {error} ({trial.log})", failed + 1
        print(f"{name:16} {outcome} ({time.monotonic() - began:.0f} s)", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
