"""The pages: programs and shell lines run, links lead somewhere, the reference is whole."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import sys
import tomllib
from importlib import import_module

import commands
import jsonschema
import mpi_harness
import pytest
import servers

from onesided.apps.cli.report import SCHEMA
from onesided.apps.report.result import Result
from onesided.collectives import __version__, methods, partitioned_methods

pytestmark = pytest.mark.one_mpi

ROOT = mpi_harness.TESTS.parent
DOCS = ROOT / "docs"
MATRIX = ROOT / "apps" / "data" / "bcsstk13.mtx.gz"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCK = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts),
    ]
}
BLOCKS = [(page, *block) for page, text in PAGES.items() for block in BLOCK.findall(text)]
PROGRAMS = [
    (page, *re.match(r"# (\w+\.py):.*\n", text).groups(), text)
    for page, language, text in BLOCKS
    if language == "python" and page != "docs/extending/transport.md"
]
GALLERY = sorted((DOCS / "gallery").glob("*.py"))
SHELL = [
    (page, line.split("  #")[0].strip())
    for page, language, text in BLOCKS
    if language == "sh"
    for line in text.replace("\\\n", " ").splitlines()
]
#: Each once, without the number of ranks.
COMMANDS = sorted({
    re.sub(r" --ranks \d+", "", line[line.index("onesided ") + 9 :])
    for _, line in SHELL
    if "onesided " in line
})
#: Not run here, but read: what takes longer than a moment; it has tests of its own.
LONG = ("bench ", "spmv matrix.mtx.gz", "report ", "hpccg", "minimd", "minife", "navier-stokes --r")
RANKS = [2, pytest.param(4, marks=pytest.mark.full)]


@pytest.fixture(scope="module")
def tables():
    """The module that writes the tables of the pages."""
    sys.path.insert(0, str(DOCS / "results"))
    yield import_module("write_tables")
    sys.path.remove(str(DOCS / "results"))


def command_line():
    """The module where pyproject.toml says that the command begins."""
    return import_module(PROJECT["scripts"]["onesided"].partition(":")[0])


# -- what is run ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(
    ("page", "name", "text"), PROGRAMS, ids=[f"{page}-{name}" for page, name, _ in PROGRAMS]
)
def test_a_program_of_a_page(tmp_path, page, name, text, ranks):
    if "from mpi4py_fft" in text:
        pytest.importorskip("mpi4py_fft")
    program = tmp_path / name
    program.write_text(text)
    outcome = servers.run(program, ranks, str(MATRIX), timeout=90)
    assert outcome.kind == "pass", outcome.report()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("program", GALLERY, ids=[path.stem for path in GALLERY])
def test_a_program_of_the_gallery(program, ranks):
    outcome = servers.run(program, ranks, timeout=90)
    assert outcome.kind == "pass", outcome.report()


def test_the_gallery_shows_every_program_with_a_small_picture():
    shown = re.findall(r"{literalinclude} (\w+)\.py", PAGES["docs/gallery/index.md"])
    assert sorted(shown) == [path.stem for path in GALLERY]
    for path in GALLERY:
        assert 1000 < path.with_suffix(".png").stat().st_size < 150_000, path


@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith(LONG)])
def test_a_command_of_a_page(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONESIDED_TUNING", str(tmp_path / "tuning.json"))
    words = re.sub(r"(\S+\.mtx\.gz)", rf"{ROOT}/\1", line)
    finished = commands.onesided(*shlex.split(words), ranks=2)
    assert finished.code == 0, finished


def test_commands_of_pages_tables_the_makefile_and_job_scripts_can_be_read(tables):
    paths = [*(DOCS / "slurm").glob("*.sh"), ROOT / "Makefile"]
    repeated = re.findall(r"Repeat it: `(.*?)`", "\n".join(PAGES.values()))
    text = "\n".join([*repeated, *(path.read_text() for path in paths)])
    found = re.findall(r"(?:\bonesided|\$\(ONESIDED\)) ([a-z][^;|\"\n]*)", text)
    assert len(repeated) >= 10
    assert len(found) >= 20
    for line in [*COMMANDS, *found, *tables.GIVEN["commands"].values()]:
        words = shlex.split(re.sub(r"\$\((BENCH_)?RANKS\)", "2", line))
        command_line().build_parser().parse_args(words)  # all options are there


def test_other_lines_of_the_shell_fit_the_sources(tmp_path):
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras, programs = PROJECT["optional-dependencies"], {name for _, name, _ in PROGRAMS}
    for page, line in SHELL:
        first, *words = shlex.split(line)
        if first == "make":
            assert words[0] in targets, (page, line)
        elif first == "pip":
            assert set(re.findall(r"\[(\w+)\]", line)) <= set(extras), (page, line)
        elif "mpi4py" in words:
            name = words[words.index("mpi4py") + 1]
            assert name in programs or (ROOT / name).exists(), (page, line)
        else:
            known = {"onesided", "mpiexec", "srun", "salloc", "python3", "."}
            assert first in known, (page, line)


def test_a_file_of_results_fits_its_schema(tmp_path):
    path = tmp_path / "fft.json"
    words = ["--shape", "8", "6", "5", "--iterations", "2", "--comm", "p2p", "--verify"]
    finished = commands.onesided("fft", *words, "--json", str(path), ranks=2)
    assert finished.code == 0, finished
    written = json.loads(path.read_text())
    row = commands.SCHEMA["properties"]["rows"]["items"]
    for form, found in [(commands.SCHEMA, written), *((row, each) for each in written["rows"])]:
        assert set(found) - set(found.get("labels", ())) <= set(form["properties"])
    del written["circumstances"]
    with pytest.raises(jsonschema.ValidationError, match="'circumstances' is a dependency"):
        jsonschema.validate(written, commands.SCHEMA)


# -- what is told ---------------------------------------------------------------------------------


def test_links_lead_somewhere():
    for page, text in PAGES.items():
        for link in LINK.findall(BLOCK.sub("", text)):
            if "://" not in link:
                assert ((ROOT / page).parent / link).resolve().exists(), (page, link)


def test_every_page_is_in_the_table_of_contents():
    lines = PAGES["docs/index.md"].splitlines()
    listed = {f"docs/{line}.md" for line in lines if line and (DOCS / f"{line}.md").exists()}
    assert listed == {page for page in PAGES if page.startswith("docs/")} - {"docs/index.md"}


def test_the_readme_is_short_and_names_every_method():
    assert len(PAGES["README.md"]) < 6500
    guides = PAGES["docs/guides/broadcast.md"] + PAGES["docs/guides/partitioned.md"]
    for name in methods():
        assert f"`{name}`" in PAGES["README.md"], name
    for name in partitioned_methods():
        assert f"`{name}`" in guides, name


def test_the_page_of_commands_shows_the_parser_with_all_options():
    page = PAGES["docs/reference/commands.md"]
    ((module, name),) = re.findall(r"autoprogram:: ([\w.]+):(\w+)\(\)", page)
    assert list(command_line().parsers())
    assert not list(command_line().parsers(getattr(import_module(module), name)()))


def test_tables_in_pages_are_those_of_the_registry_the_counts_and_the_claims(tables):
    for page, text in PAGES.items():
        assert tables.filled(text) == text, f"{page}: run docs/results/write_tables.py"


def test_every_table_of_measurements_has_its_place(tables):
    marks = [found.group(2, 3) for text in PAGES.values() for found in tables.TABLE.finditer(text)]
    shown = [words.split()[0] for kind, words in marks if kind == "results"]
    assert set(shown) == set(tables.GIVEN["table"])
    assert {words.split()[0] for kind, words in marks if kind == "targets"} < set(shown)
    assert {kind for kind, _ in marks} == {"results", "targets", "methods", "calls", "claims"}


def measurement(ratios, vendor):
    """A result of exchanges: for sizes from 64 B on, times over those of MPI."""
    sizes = ["64 B", "1 KiB", "8 KiB"]
    return Result("rounds.json", {
        "schema": SCHEMA, "command": "bench rounds", "settings": {},
        "versions": {"mpi library": vendor}, "circumstances": {"date": "2026-01-02T03:04"},
        "machine": {"ranks": 2, "nodes": 1, "all_cores": 4, "processor": "a processor"},
        "rows": [{"labels": {"method": "auto", "memory": "empty", "bytes": size}, "median_s": 1e-6,
                  "ratios": {"mpi": ratio}} for size, ratio in zip(sizes, ratios, strict=False)],
    })  # fmt: skip


def test_a_table_of_measurements(tables, monkeypatch):
    monkeypatch.setattr(tables, "held", lambda result: [
        ({"at_most": 0.5, "against": "mpi"}, entry, None) for entry in result.timed])  # fmt: skip
    every = {
        "mpich": {"rounds": measurement([0.5, 0.504, 0.506], "MPICH 9")},
        "openmpi": {"rounds": measurement([0.25, 0.75], "Open MPI 9")},
    }
    page = "<!-- table: KIND rounds -->\n<!-- end -->\n"
    found = tables.filled(page.replace("KIND", "results"), every)
    cells = tables.read(found)["memory from `empty`"]
    assert list(cells.values()) == ["0.50 / 0.25", "0.50 / 0.75", "0.51 / -", *[""] * 5]
    assert "| MPICH 9 / Open MPI 9 | 64 B |" in found
    assert "2 ranks on 1 node, 4 cores of a processor, OMP_NUM_THREADS=1; 2026-01-02. " in found
    assert "Repeat it: `onesided bench rounds --ranks 2`.\n<!-- end -->\n" in found
    found = tables.filled(page.replace("KIND", "targets"), every)
    bounded = list(tables.read(found)["memory from `empty`"].values())[:3]
    assert bounded == ["0.50 / 0.25 (0.5)", "**0.50 / 0.75** (0.5)", "**0.51 / -** (0.5 / -)"]
    assert "In brackets what is wanted; 2 of 3 cells miss it, in bold.\n" in found
    alone = tables.results(every, "rounds", "openmpi")
    assert list(tables.read(alone)["memory from `empty`"].values())[:3] == ["0.25", "0.75", ""]


@pytest.mark.parametrize(("cells", "text"), [
    ([("2.10", "2.2"), ("2.30", "2.2")], "**2.10 / 2.30** (2.2)"),
    ([("2.20", "2.2"), ("2.30", "2")], "2.20 / 2.30 (2.2 / 2)"),
    ([("2.20", ""), ("", "")], "2.20 / -"),
])  # fmt: skip
def test_cells_of_times_as_fast(tables, cells, text):
    assert tables.shown(cells, faster=True, targets=True) == text


def test_targets_stand_beside_the_numbers_of_performance():
    blocks = re.findall(
        r"((?:^\|.*\n)+)\n(.*?\.) In brackets what is wanted; (\d+) of (\d+) cells",
        PAGES["docs/targets.md"], re.MULTILINE)  # fmt: skip
    assert len(blocks) == 7
    for table, title, misses, count in blocks:
        plain = re.sub(r"\*\*| \([\d./ -]+\)", "", table)
        assert f"{plain}\n{title} " in PAGES["docs/performance.md"], title
        bounded = re.findall(r"\| (\**)[\d./ -]+?\** \([\d./ -]+\)", table)
        assert [len([bold for bold in bounded if bold]), len(bounded)] == [int(misses), int(count)]


#: Numbers that sentences quote: the page, the words around the least and the largest, and the cells
#: of which they are that: MPIs, how the names of rows begin, and columns.
QUOTED = [
    ("which-method", r"from `empty` \| rounds in (.*) to (.*) of the time of", "mpich openmpi",
     ("two slots", "memory from"), slice(0, 5)),
    ("which-method", r"1 to 16 MiB \| (.*) to (.*) of it", "mpich openmpi",
     ("two slots", "memory from"), slice(5, None)),
    ("which-method", r"on MPICH (.*) to (.*) of it;", "mpich", ("a plain",), slice(None)),
    ("which-method", r"on Open MPI (.*) to (.*) up to 8 KiB", "openmpi", ("a plain",), slice(0, 3)),
    ("which-method", r"from 128 KiB on \((.*) to (.*)\)", "openmpi", ("a plain",), slice(4, None)),
]  # fmt: skip


@pytest.mark.parametrize(("page", "words", "mpis", "rows", "columns"), QUOTED)
def test_numbers_in_sentences_are_those_of_the_tables(tables, page, words, mpis, rows, columns):
    (quoted,) = re.findall(words, PAGES[f"docs/{page}.md"])
    found = [tables.read(each[4]) for each in tables.TABLE.finditer(PAGES["docs/performance.md"])
             if each[3] in [f"rounds {mpi}" for mpi in mpis.split()]]  # fmt: skip
    cells = [cell for table in found for name, row in table.items() if name.startswith(rows)
             for cell in list(row.values())[columns]]  # fmt: skip
    assert quoted == (min(cells, key=float), max(cells, key=float))


def test_the_picture_of_speed_is_what_is_drawn(tables):
    drawn = import_module("speed")
    text = drawn.PICTURE.read_text(encoding="utf-8")
    assert text == drawn.speed(PAGES["docs/performance.md"]), "run docs/results/speed.py"


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize("package", ["collectives", "pencilfft", "sparse"])
def test_examples_of_the_reference(package, ranks):
    program = mpi_harness.TESTS / "programs" / "examples.py"
    outcome = servers.run(program, ranks, package, timeout=90)
    assert outcome.kind == "pass", outcome.report()


@pytest.mark.parametrize("package", ["collectives", "pencilfft", "sparse"])
def test_every_public_name_is_documented(package):
    module = import_module(f"onesided.{package}")
    shown = re.findall(r"^   (\w+)$", PAGES[f"docs/reference/{package}.md"], re.MULTILINE)
    assert sorted(shown) == sorted(module.__all__)
    silent = []
    for name in module.__all__:
        found = getattr(module, name)
        if not inspect.getdoc(found):
            silent.append(name)
        if inspect.isclass(found) and found.__module__.startswith("onesided"):
            silent += [
                f"{name}.{member}"
                for member, value in vars(found).items()
                if not member.startswith("_")
                and (inspect.isfunction(value) or isinstance(value, property))
                and not inspect.getdoc(getattr(found, member))
            ]
    assert not silent


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert __version__ == version
    recipe = (ROOT / "docs" / "packaging" / "conda" / "meta.yaml").read_text()
    assert f'set version = "{version}"' in recipe
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
