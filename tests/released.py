"""Released source packages of other projects, and what is built from them, for the drop-in tests.

Fetched by pip as it is set up on this machine, into a folder of the test run. Whatever keeps that
from working (no network, no compiler, no FFTW) skips the test and says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

SHENFUN = "4.3.0"
NEEDED = ("sympy", "pyyaml", "numba")  # by shenfun 4.3.0, which does not say so


def pip(*words: str, timeout: float = 120.0) -> None:
    """``pip WORDS``; skips the test where it fails."""
    line = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=timeout, check=False,
            env=os.environ | {"PIP_NO_INPUT": "1", "PIP_RETRIES": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip {' '.join(words)} took more than {timeout:g} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"pip {' '.join(words)} failed: {last}")


def source(package: str, version: str, folder: Path) -> Path:
    """The unpacked source package: the folder that has its tests."""
    pip("download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
        f"{package}=={version}", "--dest", str(folder))  # fmt: skip
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (tests,) = (found for name in ("test", "tests") for found in folder.glob(f"*/{name}"))
    return tests


def installed_version(package: str, module: str) -> str:
    """The version of a package that this environment has; skips the test where it has none."""
    try:
        __import__(module)
        return metadata.version(package)
    except ImportError as error:
        pytest.skip(f"{package} cannot be imported here: {error}")


def built(folder: Path, *packages: str, timeout: float = 900.0) -> Path:
    """Packages built from their sources, without what they depend on, in a folder."""
    pip("install", "--no-deps", "--no-binary", ",".join(packages), "--target", str(folder),
        *packages, timeout=timeout)  # fmt: skip
    return folder
