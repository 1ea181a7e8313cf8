"""The compiled parts in builds with sanitizers, under the tests that need no MPI.

    python tests/sanitize.py address        (addresses, undefined behavior)
    python tests/sanitize.py thread         (data races)

The extension modules of ``pyproject.toml`` are built by gcc into a folder of their own; a fresh
Python, the ordinary one, is started with the sanitizer's library in front, and this file as a
plugin of pytest, which puts the modules of that folder in the place of the installed ones. Python
itself is not instrumented: what it does is seen where it calls the C library, its locks above all.
A finding ends the run with exit code 66 and the report of the sanitizer.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "ONESIDED_SANITIZED"  # environment variable: where the modules of the build are
FOUND = 66

FLAGS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}
LIBRARIES = {"address": ["libasan.so", "libubsan.so"], "thread": ["libtsan.so"]}
#: What is run: everything compiled that can be reached without MPI, and what really races.
TESTS = {
    "address": [
        "test_rounds_interpreters.py", "test_rounds_races.py", "test_rounds_threads.py",
        "test_scripts.py", "test_sparse_kernels.py", "test_sparse_matrixmarket.py",
        "test_sparse_local.py",
    ],
    "thread": ["test_rounds_races.py", "test_rounds_threads.py", "test_scripts.py"],
}
SUPPRESSIONS = Path(__file__).with_name("sanitize_thread.txt")
OPTIONS = {
    # Python keeps what it allocates to its end; that is no leak of ours
    "ASAN_OPTIONS": f"detect_leaks=0:exitcode={FOUND}:abort_on_error=0",
    "UBSAN_OPTIONS": f"print_stacktrace=0:exitcode={FOUND}",
    "TSAN_OPTIONS": f"exitcode={FOUND}:halt_on_error=0:second_deadlock_stack=1:"
                    f"suppressions={SUPPRESSIONS}",
}


def modules() -> list[dict[str, list[str]]]:
    """The extension modules that pyproject.toml names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["tool"]["setuptools"]["ext-modules"]


def build(kind: str, folder: Path) -> None:
    """Every extension module with the sanitizer, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    include = sysconfig.get_path("include")

    def one(module: dict[str, list[str]]) -> None:
        flags = [flag for flag in module.get("extra-compile-args", []) if not flag.startswith("-O")]
        sources = [str(ROOT / source) for source in module["sources"]]
        subprocess.run(
            ["gcc", "-O1", "-g", "-fno-omit-frame-pointer", "-shared", "-fPIC", *FLAGS[kind],
             *flags, f"-I{include}", *sources, "-o", folder / f"{module['name']}.so",
             *module.get("extra-link-args", []), *module.get("libraries", [])],
            check=True,
        )  # fmt: skip

    with ThreadPoolExecutor() as pool:
        list(pool.map(one, modules()))


def libraries(kind: str) -> list[str]:
    """The libraries of the sanitizer, which are loaded before everything else."""
    found = []
    for name in LIBRARIES[kind]:
        said = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True)
        if "/" not in said.stdout:
            raise SystemExit(f"gcc has no {name}; Debian's package is libgcc-dev")
        found.append(os.path.realpath(said.stdout.strip()))
    return found


def pytest_configure() -> None:
    """As a plugin: the modules of the build take the place of the installed ones."""
    for file in sorted(Path(os.environ[FOLDER]).glob("*.so")):
        name = file.stem
        loader = importlib.machinery.ExtensionFileLoader(name, str(file))
        spec = importlib.util.spec_from_file_location(name, file, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        sys.modules[name] = module


def pytest_report_header() -> str:
    return f"compiled parts: {os.environ[FOLDER]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(FLAGS))
    parser.add_argument("words", nargs="*", help="further words for pytest, after --")
    options = parser.parse_args()
    if shutil.which("gcc") is None:
        raise SystemExit("the sanitizers are gcc's; gcc is not installed")
    folder = ROOT / "build" / "sanitize" / options.kind
    build(options.kind, folder)
    # MPI is not started; UCX below it puts hooks around calls of the C library, in threads that
    # the sanitizer does not know any more. Python's own allocator would hide where its blocks end.
    environment = os.environ | OPTIONS | {
        FOLDER: str(folder), "LD_PRELOAD": " ".join(libraries(options.kind)),
        "MPI4PY_RC_INITIALIZE": "0", "UCX_MEM_EVENTS": "no", "PYTHONMALLOC": "malloc",
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ONESIDED_CORE": "",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    tests = [str(ROOT / "tests" / name) for name in TESTS[options.kind]]
    call = [sys.executable, "-m", "pytest", "-p", "sanitize", "-p", "no:cacheprovider", "-s", "-q",
            *tests, *options.words]
    return subprocess.run(call, env=environment, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
