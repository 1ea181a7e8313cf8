"""The rules of the house that a program can check; no MPI."""

from __future__ import annotations

import ast
import functools
import graphlib
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("collectives", "pencilfft", "sparse", "apps")
MAY_IMPORT = {
    "collectives": {"collectives"},
    "pencilfft": {"pencilfft", "collectives"},
    "sparse": {"sparse", "collectives"},
    "apps": {"apps", "pencilfft", "sparse", "collectives"},
}
#: The rooms of the applications; the report reads files and draws, and knows no program.
ROOMS = {
    "cli": set(),
    "report": {"cli"},
    "bench": {"cli", "report"},
    "tools": {"cli", "report", "bench"},
    "solvers": {"cli", "report", "bench", "tools", "miniapps"},
    "miniapps": {"cli", "report", "bench", "tools"},
    "papers": {"cli", "report", "bench", "tools"},
}
FILE_LINES = 700
#: What builds the core is beside it, and no part of the package.
BACKEND = ROOT / "collectives" / "core" / "backend.py"
SOURCES = sorted(
    path for name in PACKAGES for path in (ROOT / name).rglob("*.py") if path != BACKEND
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def python(code: str, *words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """What a new process says that runs these lines in a folder."""
    return subprocess.run([sys.executable, "-c", code, *words], cwd=folder, capture_output=True,
                          text=True, check=False)  # fmt: skip


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> list[str]:
    """Absolute names of the modules that a file imports."""
    package = ["onesided", *path.relative_to(ROOT).parts[:-1]]
    names = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            names += [".".join([*module, alias.name]) for alias in node.names]
    return names


def test_there_is_something_to_check():
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)


def crossed(path: Path) -> list[str]:
    """What a file imports against the arrows of the packages, or of the rooms of the
    applications."""
    parts = path.relative_to(ROOT).parts
    names = [name.split(".") for name in imported(path)]
    found = [name for name in names if name[0] in PACKAGES]  # onesided.sparse, not sparse
    ours = [name for name in names if name[0] == "onesided" and len(name) > 1]
    found += [name for name in ours if name[1] not in MAY_IMPORT[parts[0]]]
    if parts[0] == "apps" and len(parts) > 2 and parts[1] != "data":
        rooms = {parts[1]} | ROOMS[parts[1]]
        found += [n for n in ours if n[1] == "apps" and len(n) > 2 and n[2] not in rooms]
    return [".".join(name) for name in found]


def test_nothing_but_the_entry_point_lies_outside_a_room():
    loose = {path.name for path in (ROOT / "apps").glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}
    rooms = {path.parent.name for path in (ROOT / "apps").glob("*/__init__.py")}
    assert rooms == set(ROOMS)
    deeper = {path.parent.name for path in (ROOT / "apps").glob("*/*/*.py")}
    assert deeper <= {"programs"}  # of others, among the data


def graph(paths: list[Path]) -> dict[str, set[str]]:
    """By module the modules of ours that it imports anywhere, for type checking too.

    A name that a package has from one of its files is an import of the package; that a module
    needs the packages it lies in is no import.
    """
    names = {path: ".".join(["onesided", *path.relative_to(ROOT).with_suffix("").parts])
             for path in paths}
    modules = {name.removesuffix(".__init__") for name in names.values()}
    compiled = {".".join(["onesided", *stub.relative_to(ROOT).with_suffix("").parts])
                for name in PACKAGES for stub in (ROOT / name).rglob("*.pyi")}
    found: dict[str, set[str]] = {}
    for path, name in names.items():
        me = name.removesuffix(".__init__")
        found[me] = set()
        for other in imported(path):
            for target in (other, other.rpartition(".")[0]):
                if target in modules | compiled:
                    found[me] |= {target} - {me}
                    break
    return found


def test_there_is_no_circle_of_imports():
    arrows = graph(SOURCES)
    assert sum(map(len, arrows.values())) > len(arrows)
    graphlib.TopologicalSorter(arrows).prepare()


def choices_of_a_method(path: Path) -> list[int]:
    """Lines that compare the name of a method: it is chosen in the registry, and nowhere else."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Compare | ast.Match):
            subject = node.left if isinstance(node, ast.Compare) else node.subject
            values = node.comparators if isinstance(node, ast.Compare) else []
            literal = isinstance(node, ast.Match) or any(
                isinstance(value, ast.Constant) and isinstance(value.value, str)
                for value in values
            )
            if literal and re.fullmatch(r"(.*\.)?method(_name)?", ast.unparse(subject)):
                found.append(node.lineno)
    return found


def too_long(path: Path) -> bool:
    """Sections of docstrings do not count."""
    heads = "Parameters|Returns|Raises|Notes|Examples|References"
    section = re.compile(rf"\n *({heads})\n *-+\n.*?(?=\n *\"\"\")", re.DOTALL)
    return len(section.sub("", path.read_text()).splitlines()) > FILE_LINES


def stubs(path: Path) -> list[int]:
    """Lines that are still to be written; ruff looks for those that say so in a comment."""
    return [node.lineno for node in ast.walk(tree(path)) if isinstance(node, ast.Raise)
            and node.exc and ast.unparse(node.exc).startswith("NotImplementedError")]  # fmt: skip


@pytest.mark.parametrize("rule", [crossed, choices_of_a_method, too_long, stubs])
def test_no_file_has(rule):
    found = {str(path.relative_to(ROOT)): rule(path) for path in SOURCES}
    assert not {path: wrong for path, wrong in found.items() if wrong}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_source_folder_is_not_an_import_name(package):
    """`import sparse` in the checkout must fail: SciPy asks sys.modules for that name."""
    code = (
        f"import sys\ntry:\n    import {package}\nexcept ImportError as error:\n"
        f"    print(error, {package!r} in sys.modules)"
    )
    done = python(code)
    assert done.stdout.strip() == f"import onesided.{package}, not {package} False", done.stderr


def folders() -> set[str]:
    """Every folder with Python files, as a package name; programs among the data are no modules."""
    parents = {path.relative_to(ROOT).parent for path in SOURCES}
    modules = [parent for parent in parents if "data" not in parent.parts]
    return {".".join(["onesided", *parent.parts]) for parent in modules}


def test_every_folder_is_listed_for_the_wheel():
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == folders()
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").exists()


def test_the_wheel_has_every_file(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    tracked = [name for name in _tracked() if (ROOT / name).is_file()]
    for name in [*tracked, *(str(path.relative_to(ROOT)) for path in SOURCES)]:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    code = (
        "import sys; sys.path.insert(0, 'collectives/core'); import backend;"
        "print(backend.build_wheel(sys.argv[1]))"
    )
    pytest.importorskip("setuptools", minversion="77")
    done = python(code, str(tmp_path), folder=source)
    assert done.returncode == 0, done.stderr
    (built,) = tmp_path.glob("*.whl")
    assert "-cp311-abi3-" in built.name or sysconfig.get_config_var("Py_GIL_DISABLED")
    with zipfile.ZipFile(built) as wheel:
        inside = set(wheel.namelist())
    expected = {f"onesided/{path.relative_to(ROOT)}" for path in SOURCES}
    expected |= {f"onesided/{package}/py.typed" for package in PACKAGES}
    data = {path for path in (ROOT / "apps" / "data").rglob("*") if path.is_file()}
    data = {path for path in data if "__pycache__" not in path.parts}
    assert data
    expected |= {f"onesided/{path.relative_to(ROOT)}" for path in data}
    assert expected <= inside, sorted(expected - inside)
    strangers = {name for name in inside if not name.startswith(("onesided/", "onesided-"))}
    assert not strangers


def test_packages_of_others_want_what_ours_wants():
    recipe = (ROOT / "docs" / "packaging" / "conda" / "meta.yaml").read_text()
    package = (ROOT / "docs" / "packaging" / "spack" / "package.py").read_text()
    wanted = PROJECT["project"]["dependencies"]
    assert wanted
    for each in wanted:
        name, least = each.split(">=")
        assert f"- {name} >={least}\n" in recipe
        assert f'"py-{name}@{least}:"' in package


def _tracked() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a checkout: the tracked files are not known")
    return done.stdout.split("\n")[:-1]


def test_no_path_of_a_machine_in_the_repository():
    pattern = re.compile(rb"(?<![\w.$}~-])/(work|root|farm|home)/[\w.-]")
    found = []
    for name in _tracked():
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and path.suffix not in (".gz", ".png"):
            lines = path.read_bytes().splitlines()
            found += [f"{name}:{n}" for n, line in enumerate(lines, 1) if pattern.search(line)]
    assert not found, found


def test_importing_changes_no_hook_and_loads_no_scipy_for_the_collectives():
    code = (
        "import sys, threading, signal\n"
        "def hooks():\n"
        "    return (sys.excepthook, threading.excepthook, sys.unraisablehook,\n"
        "            sys.breakpointhook, *map(signal.getsignal, (signal.SIGINT, signal.SIGTERM)))\n"
        "before = hooks()\n"
        "import onesided.collectives\n"
        "print('scipy' in sys.modules, 'h5py' in sys.modules, 'rich' in sys.modules)\n"
        "import onesided.pencilfft, onesided.sparse, onesided.apps\n"
        "print(before == hooks())\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False", "False", "True"]


@pytest.mark.parametrize("missing", [True, False])
def test_a_wheel_is_for_every_processor(monkeypatch, tmp_path, missing):
    """Zig's compiler, which comes from the index, would build for the processor of this machine."""
    names = {"__name__": "backend", "__file__": str(BACKEND)}
    exec(compile(BACKEND.read_text(), str(BACKEND), "exec"), names)
    if not missing:
        (tmp_path / "cc").write_text("#!/bin/sh\n")
        (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("LDSHARED", "")
    names["_choose_compiler"]()
    assert ("-mcpu=baseline" in os.environ["CC"]) == missing
    assert ("-mcpu=baseline" in os.environ["LDSHARED"]) == missing
