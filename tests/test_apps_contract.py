"""What holds of every command alike: help, options, mistakes, files, Ctrl-C, pictures, results."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from argparse import SUPPRESS
from importlib.metadata import version
from importlib.util import find_spec
from types import SimpleNamespace

import commands
import jsonschema
import mpi_harness
import pytest

from onesided.apps.cli import main as entry
from onesided.apps.cli.options import OPTIONS, FileName, FolderName, Picture

pytestmark = pytest.mark.one_mpi

MATRICES = mpi_harness.TESTS / "matrices"
SCHEMA = mpi_harness.TESTS.parent / "docs" / "reference" / "results.schema.json"
PARSERS = {parser.prog.removeprefix("onesided "): parser for parser in entry.parsers()}
EVERY = pytest.mark.parametrize("name", PARSERS)
#: What a command needs; {} is a folder.
NEEDS = {
    "solve": f"{MATRICES}/Trefethen_20b.mtx.gz",
    "pagerank": f"{MATRICES}/karate.mtx.gz",
    "generate": "grid7 --shape 3 -o {}/made.mtx",
    "bench all": "-o {}/results",
    "bench compare": "{0}/a.json {0}/b.json",
    "bench check": "{}",
    "report": "{}",
}
#: What is left of a command that is over soon, by the number of its ranks: it writes results.
SMALL = {
    1: {
        "fft": "--shape 6 5 4 --iterations 1 --comm p2p",
        "spmv": f"{MATRICES}/karate.mtx.gz --iterations 1 --comm p2p",
        "solve": "--comm p2p",
        "pagerank": "--comm p2p",
        "generate": "",
        "poisson": "--shape 16 16 --levels 1 --iterations 1 --comm p2p",
        "navier-stokes": "--shape 8 --steps 1 --comm p2p",
        "heat": "--shape 16 16 --steps 2 --repeats 1 --comm grid,halo",
        "hpccg": "--shape 4 --iterations 5 --repeats 1 --comm fence --scaling weak",
        "minife": "--shape 6 --iterations 5 --repeats 1 --comm fence",
        "minimd": "--shape 4 --steps 2 --repeats 1 --comm fence",
        "doctor": "--comm p2p",
        "tune": "--show",
        "bench alltoallv": "--sizes 64 --iterations 1 --repeats 1 --comm p2p --memory slots",
        "bench rounds": "--sizes 64 --iterations 1 --repeats 1 --memory slots --comm p2p",
        "bench collectives": "--operations Bcast --sizes 8 --iterations 1 --comm auto",
        "bench patterns": f"{MATRICES}/karate.mtx.gz --mesh 0 --iterations 1 --repeats 1 "
        "--comm p2p --memory slots",
        "bench broadcast": "--sizes 64 --iterations 1 --comm mpi",
        "bench fft": "--shape 6 5 4 --iterations 1 --comm p2p --against fftw-mpi",
        "bench halo": "--shape 8 8 --iterations 1",
        "bench programs": f"{mpi_harness.TESTS}/programs/of_others.py --iterations 1 --set N=6",
        "bench spmv": "--shape 4 --mesh 0 --iterations 1 --comm p2p",
    },
    2: {
        "bench partitioned": "--buffer 1K --sizes 512 --iterations 1 --threads 1 --comm p2p",
        "bench rma-mt": "--sizes 64 --threads 1 --iterations 1",
        "bench apps": "--shape 8 8 8 --maxiter 3 --iterations 1 --comm p2p",
    },
}
RUNS = [(name, words, ranks) for ranks, each in SMALL.items() for name, words in each.items()]
#: Their results are files of other commands; or they have tests of their own, as they take long.
WITHOUT_RESULTS = {"report", "bench all", "bench compare", "bench check"}
#: They have nothing to verify, or always do it.
ALWAYS_VERIFIED = {name for name in PARSERS if name.startswith("bench ")} - WITHOUT_RESULTS
NOTHING_TO_VERIFY = {"doctor", "tune", "bench all", "report", "bench compare", "bench check"}


def options_of(name):
    """What a command takes, but --help."""
    return [action for action in PARSERS[name]._actions if action.dest != "help"]


def words_of(name, folder, *more):
    return [*name.split(), *NEEDS.get(name, "").format(folder).split(), *more]


def refused(finished, fragment):
    assert finished.code == 2, finished
    assert len(finished.sentences) == 1, finished
    assert finished.err.count("\n") == 1, finished
    assert fragment in finished.sentences[0], finished
    assert finished.out == "", finished


@pytest.fixture
def stub(monkeypatch):
    """Instead of the work; a list of what the commands were given."""
    given = []

    def run(comm, options):
        given.append(options)
        return 0

    found = SimpleNamespace(given=given, run=run)
    monkeypatch.setattr(entry.Command, "run", property(lambda command: found.run))
    return found


def test_every_command_is_here():
    known = {command.name for command in entry.COMMANDS}
    assert set(PARSERS) == known
    assert {name for name, _, _ in RUNS} | WITHOUT_RESULTS == known


@EVERY
def test_help_names_every_option_with_the_text_of_the_table(name):
    finished = commands.onesided(*name.split(), "--help")
    assert finished.code == 0, finished
    assert finished.err == ""
    shown = "".join(finished.out.split())
    for action in options_of(name):
        assert action.help not in (None, SUPPRESS), action
        assert "".join(action.help.split()) in shown, action
        option = OPTIONS.get(action.option_strings[-1][2:]) if action.option_strings else None
        if option is None:
            continue
        assert action.help.startswith(option.meaning), action
        assert action.metavar == (option.metavar or None), action
        assert (action.nargs == 0) == (option.type is None), action


def test_what_several_commands_have_is_in_the_table_and_all_of_the_table_is_taken():
    takers = {}
    for name in PARSERS:
        for action in options_of(name):
            for flag in action.option_strings:
                takers.setdefault(flag.lstrip("-"), []).append(name)
    assert {flag for flag, names in takers.items() if len(names) > 1} <= {*OPTIONS, "o"}
    assert set(OPTIONS) <= set(takers)


def test_results_are_verified_and_ranks_may_be_chosen():
    taken = {name: {action.dest for action in options_of(name)} for name in PARSERS}
    without = {name for name in PARSERS if "verify" not in taken[name]}
    assert without == ALWAYS_VERIFIED | NOTHING_TO_VERIFY
    assert {name for name in PARSERS if "json" not in taken[name]} == WITHOUT_RESULTS
    without = {"report", "bench compare", "bench check"}
    assert {name for name in PARSERS if "ranks" not in taken[name]} == without


@EVERY
def test_an_unknown_option_is_one_sentence(name, tmp_path):
    for flag in ("--magic", "--jso"):  # the beginning of an option is none
        refused(commands.onesided(*words_of(name, tmp_path, flag, "80")), flag)


@EVERY
def test_numbers_that_are_none_are_one_sentence(name, tmp_path):
    for action in options_of(name):
        if action.option_strings and action.type is not None and action.metavar == "N":
            flag = action.option_strings[-1]
            finished = commands.onesided(*words_of(name, tmp_path, flag, "many"))
            refused(finished, f"{flag}: 'many' is not")


@EVERY
def test_a_file_that_cannot_be_written_is_refused_before_the_work(name, tmp_path, stub):
    (tmp_path / "file").write_text("")
    for action in options_of(name):
        flag = action.option_strings[-1] if action.option_strings else ""
        if action.type is FolderName:
            finished = commands.onesided(*words_of(name, tmp_path, flag, f"{tmp_path}/file"))
            refused(finished, "File exists")
        elif isinstance(action.type, type) and issubclass(action.type, FileName):
            if action.type is Picture and find_spec("matplotlib") is None:
                continue
            finished = commands.onesided(*words_of(name, tmp_path, flag, f"{tmp_path}/no/x.png"))
            refused(finished, f"{tmp_path}/no/x.png: No such file or directory")
            if action.type is Picture:
                finished = commands.onesided(*words_of(name, tmp_path, flag, f"{tmp_path}/x.doc"))
                refused(finished, f"{tmp_path}/x.doc: an image is one of")
    assert stub.given == []
    assert not [path for path in tmp_path.iterdir() if path.name not in ("file", "results")]


@EVERY
def test_an_interrupt_ends_a_command(name, tmp_path, stub):
    def interrupted(comm, options):
        raise KeyboardInterrupt

    stub.run = interrupted
    finished = commands.onesided(*words_of(name, tmp_path))
    assert (finished.code, finished.err) == (130, "onesided: interrupted\n")


@pytest.mark.parametrize("name", [each.name for each in entry.COMMANDS if each.starts_jobs])
def test_a_command_that_starts_jobs_says_so_under_mpiexec(name, tmp_path):
    finished = commands.onesided(*words_of(name, tmp_path), ranks=2)
    assert finished.code == 2, finished
    said = f"onesided: {name} starts its own jobs: run it without mpiexec, with --ranks N"
    assert finished.sentences == [said]


def test_an_error_of_the_library_is_one_sentence(stub):
    from onesided.collectives import PatternError

    def broken(comm, options):
        raise PatternError("counts that do not match")

    stub.run = broken
    refused(commands.onesided("doctor"), "counts that do not match")


@pytest.mark.parametrize(("name", "words", "ranks"), RUNS, ids=[name for name, _, _ in RUNS])
def test_results_fit_the_schema_and_pictures_are_drawn(name, words, ranks, tmp_path, monkeypatch):
    monkeypatch.setenv("ONESIDED_TUNING", str(tmp_path / "tuning.json"))
    monkeypatch.delenv("ONESIDED_MATRICES", raising=False)
    path, picture = tmp_path / "out.json", tmp_path / "out.png"
    more = [*words.split(), "--json", str(path)]
    taken = {action.dest for action in options_of(name)}
    more += ["--verify"] if "verify" in taken else []
    if "picture" in taken and find_spec("matplotlib") is not None:
        more += ["--picture", str(picture)]
    inside = ranks if ranks > 1 else None
    finished = commands.onesided(*words_of(name, tmp_path, *more), ranks=inside)
    assert finished.code == 0, finished
    content = json.loads(path.read_text())
    jsonschema.validate(content, json.loads(SCHEMA.read_text()))
    assert content["command"] == name
    assert str(tmp_path) not in json.dumps(content["settings"])
    hidden = {"version", "print_completion", "json", "picture", "output", "format"}
    assert not hidden & set(content["settings"])
    if "verify" in taken:
        assert content["verified"] is True, content
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in tmp_path.glob("*.png"))
    if "--picture" in more:
        assert list(tmp_path.glob("out*.png"))


# -- beside the commands ---------------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    "bench rma-mt --patterns", "bench partitioned --orders", "bench alltoallv --scaling",
    "bench rounds --memory", "bench patterns --patterns", "bench halo --patterns",
    "bench collectives --operations",
])  # fmt: skip
def test_all_can_be_given_where_it_is_the_default(words, stub):
    for more in (["all"], []):
        assert commands.onesided(*(words.split() if more else words.split()[:2]), *more).code == 0
    given, default = (vars(each)[words.rpartition("--")[2]] for each in stub.given)
    assert given == list(default)
    assert "all" not in given


def test_versions_are_told_in_two_lines():
    finished = commands.onesided("--version")
    assert finished.code == 0, finished
    first, second = finished.out.splitlines()
    assert re.fullmatch(rf"onesided {version('onesided')}, .+ \(MPI \d\.\d\)", first)
    for package in ("mpi4py", "numpy"):
        assert f"{package} {version(package)}" in second


def test_versions_are_told_once_in_a_job():
    finished = commands.onesided("--version", ranks=2)
    assert finished.code == 0, finished
    assert finished.out.count("onesided ") == 1


@pytest.mark.parametrize("shell", entry.SHELLS)
def test_a_completion_is_printed(shell):
    pytest.importorskip("argcomplete", reason="completion needs argcomplete")
    finished = commands.onesided("--print-completion", shell)
    assert finished.code == 0, finished
    assert "_ARGCOMPLETE" in finished.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=finished.out, text=True, check=True)


def test_without_argcomplete_a_completion_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    refused(commands.onesided("--print-completion", "bash"), "the extra completion")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("onesided ben", {"bench"}),
        ("onesided bench al", {"all", "alltoallv"}),
        ("onesided fft --ver", {"--verify"}),
        ("onesided fft --dtype comp", {"complex64", "complex128"}),
    ],
)
def test_words_are_completed(line, wanted, tmp_path):
    pytest.importorskip("argcomplete", reason="completion needs argcomplete")
    out = tmp_path / "words"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)),
             "_ARGCOMPLETE_STDOUT_FILENAME": str(out), "_ARGCOMPLETE_IFS": "\n"}  # fmt: skip
    env = commands.clean_environment() | asked
    subprocess.run([sys.executable, "-m", "onesided.apps"], env=env, check=True, timeout=60)
    assert {word.strip() for word in out.read_text().split("\n")} == wanted


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (["-m", "onesided.apps", "--help"], ("numpy", "mpi4py", "rich", "subprocess")),
        (["-m", "onesided.apps", "bench", "rma-mt", "--help"], ("numpy", "mpi4py", "rich")),
        (["-m", "onesided.apps", "fft", "--help"], ("numpy", "scipy", "mpi4py", "rich", "h5py")),
        (["-c", "import onesided.collectives"], ("onesided.apps", "rich", "argparse")),
    ],
    ids=["help", "help of a benchmark", "help of a command", "the library"],
)
def test_what_is_not_needed_is_not_imported(words, unwanted):
    line = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(line, env=commands.clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    found = {name for name in names if name.startswith(unwanted) and "finder" not in name}
    assert found <= {"onesided"}, os.linesep.join(sorted(found))
