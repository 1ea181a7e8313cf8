"""The commands, run as a person runs them: alone, under mpiexec, and starting themselves."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import commands
import mpi_harness
import pytest
import servers

from onesided.apps.tools.doctor import OPERATIONS
from onesided.collectives.program import COMPILED, interpreter
from onesided.collectives.registry import methods
from onesided.sparse.files.entries import parser
from onesided.sparse.kernels.registry import available

TESTS = Path(__file__).resolve().parent
FAULTS = TESTS / "programs" / "apps_fault.py"
MATRIX = TESTS / "matrices" / "west0067.mtx.gz"
SMALL = ["fft", "--shape", "12", "10", "9", "--iterations", "2"]


def ran(finished: commands.Finished, code: int = 0) -> commands.Finished:
    assert not finished.hung, finished
    assert finished.code == code, finished
    return finished


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize(("words", "said"), [
    (SMALL, "Verified with scipy.fft"),
    (["spmv", str(MATRIX), "--iterations", "3"], "Verified with SciPy"),
], ids=["fft", "spmv"])  # fmt: skip
def test_every_method_is_right_and_leaves_nothing(words, said, ranks):
    words = [*words, "--comm", "all", "--verify"]
    outcome = servers.run("-m onesided.apps", ranks, *words, timeout=120)
    assert outcome.kind == "pass", outcome.report()
    for method in methods():
        assert re.search(rf"\b{method} ", outcome.stdout), outcome.report()
    assert said in outcome.stdout


@pytest.mark.one_mpi
@pytest.mark.some(1)
@pytest.mark.parametrize(("given", "threads"), [([], 1), (["OMP_NUM_THREADS=3"], 3)])
def test_a_rank_has_one_thread_unless_the_user_says_otherwise(given, threads):
    outcome = mpi_harness.run(TESTS / "programs" / "apps_threads.py", 2, *given, timeout=60)
    assert outcome.kind == "pass", outcome.report()
    assert outcome.stdout.count(f"threads {threads}") == 2, outcome.report()


#: Python finds a compiled core that is no library.
UNLOADABLE = """
import importlib.util, sys
class Finder:
    @staticmethod
    def find_spec(name, *more):
        if name == "onesided.collectives._core":
            return importlib.util.spec_from_file_location(name, {!r})
sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(("core", "words"), [
    ("", interpreter()), ("python", "Python (ONESIDED_CORE=python)"),
    ("broken", "Python (the compiled core cannot be loaded: {}: file too short)")])
def test_doctor_tells_who_runs_rounds(core, words, tmp_path):
    if core == "python" and not COMPILED:
        pytest.skip("there is no compiled core: nothing can be chosen")
    path, run, env = tmp_path / "doctor.json", servers.run, {}
    if core == "broken":
        library = tmp_path / "_core.abi3.so"
        library.touch()
        (tmp_path / "sitecustomize.py").write_text(UNLOADABLE.format(str(library)))
        words, run, env = words.format(library), mpi_harness.run, {"PYTHONPATH": str(tmp_path)}
    elif core:
        env = {"ONESIDED_CORE": core}
    arguments = ["doctor", "--comm", "p2p", "--json", str(path)]
    outcome = run("-m onesided.apps", 1, *arguments, env=env)
    assert outcome.kind == "pass", outcome.report()
    assert re.search(rf"rounds are run by +{re.escape(words)}\n", outcome.stdout), outcome.report()
    assert json.loads(path.read_text())["machine"]["interpreters"] == [words]


@pytest.mark.parametrize("ranks", [1, 2])
def test_doctor_tries_every_method(ranks):
    outcome = servers.run("-m onesided.apps", ranks, "doctor", timeout=120)
    assert outcome.kind == "pass", outcome.report()
    for operation in OPERATIONS:
        for method in methods(operation):
            line = rf"\b{method} .*\b(yes|not here)\b"
            assert re.search(line, outcome.stdout), outcome.report()
    assert "NO" not in re.findall(r"\bNO\b", outcome.stdout)
    kernels = f"sparse kernels  {', '.join(available())}"
    words = ("MPI library", "thread level", f"rounds are run by  {interpreter()}", "Known defects")
    for word in (*words, kernels, f"matrices are parsed by  {parser()}", f"{ranks} rank"):
        assert word in outcome.stdout, outcome.report()


@pytest.mark.skipif(mpi_harness.mpi_name() != "mpich", reason="MPICH's nodes of every second rank")
def test_a_broadcast_knows_the_nodes_of_its_ranks(tmp_path):
    path, env = tmp_path / "b.json", {"MPIR_CVAR_ODD_EVEN_CLIQUES": "1"}
    words = "bench broadcast --sizes 64 --iterations 1 --comm mpi --ranks-list 1 2".split()
    outcome = servers.run("-m onesided.apps", 3, *words, "--json", str(path), env=env, timeout=60)
    assert outcome.kind == "pass", outcome.report()
    content = json.loads(path.read_text())
    assert content["machine"]["ranks_per_node"] == [2, 1]
    assert [row["metrics"]["nodes"] for row in content["rows"]] == [1, 2]


@pytest.mark.one_mpi
@pytest.mark.parametrize(
    "words",
    [
        ["alltoallv", *"--sizes 1K 64K --iterations 2 --comm all --repeats 2".split()],
        ["fft", "--shape", "12", "10", "9", "--iterations", "2"],
        ["spmv", "--shape", "7", "--iterations", "2", "--comm", "p2p"],
        ["rma-mt", *"--patterns bandwidth --sizes 8 --threads 2 --iterations 2".split()],
    ],
    ids=lambda words: words[0],
)
def test_benchmarks_come_to_their_end(words, tmp_path):
    path = tmp_path / "bench.json"
    arguments = ["bench", *words, "--json", str(path)]
    outcome = servers.run("-m onesided.apps", 2, *arguments, timeout=200)
    assert outcome.kind == "pass", outcome.report()
    rows = [row for row in json.loads(path.read_text())["rows"] if "reason" not in row]
    assert len(rows) >= 3
    for row in rows:
        assert row["iterations"] == len(row["times_s"]) > 0
        assert row["median_s"] > 0
        compared = row["ratios"].keys() & {"mpi", "two-sided"}
        assert compared or row["labels"]["method"] in ("SciPy", "mpi4py-fft")
    if words[0] == "rma-mt":  # whoever sends them
        assert {row["metrics"]["messages"] for row in rows} == {2 * 256}


@pytest.mark.some(1)
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_command_starts_itself(ranks):
    finished = ran(commands.onesided(*SMALL, "--comm", "rma-fence", "--ranks", str(ranks)))
    assert f"{ranks} rank" in finished.out
    assert finished.err == ""


def test_a_command_runs_without_a_launcher():
    finished = ran(commands.onesided("spmv", "--iterations", "2", "--verify", fresh=True))
    assert "1 node, 1 rank" in finished.out
    assert "Verified" in finished.out
    assert finished.err == ""


def test_ranks_may_be_named_again_inside_a_job():
    ran(commands.onesided(*SMALL, "--ranks", "2", ranks=2))


@pytest.mark.one_mpi
def test_an_infiltrated_result_is_noticed():
    finished = commands.python(str(FAULTS), "wrong", *SMALL[1:], "--verify", ranks=2)
    assert "WRONG" in ran(finished, 1).out


@pytest.mark.some(1)
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("fault", ["rank", "thread"])
def test_an_unexpected_error_ends_the_job(fault, ranks):
    finished = commands.python(str(FAULTS), fault, ranks=ranks, timeout=60)
    assert not finished.hung, finished
    assert finished.code not in (0, 2), finished
    assert "ZeroDivisionError" in finished.err


def test_an_error_of_one_rank_alone_ends_the_job():
    finished = commands.python(str(FAULTS), "alone", ranks=2, timeout=60)
    assert not finished.hung, finished
    assert finished.code != 0
    assert "only this rank has seen it" in finished.err


@pytest.fixture
def files(tmp_path):
    """Files with which something is wrong."""
    text = gzip.decompress(MATRIX.read_bytes())
    (tmp_path / "truncated.mtx").write_bytes(b"\n".join(text.splitlines()[:-5]) + b"\n")
    (tmp_path / "cut.mtx.gz").write_bytes(MATRIX.read_bytes()[:-200])
    (tmp_path / "other.txt").write_text("no matrix\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "word.mtx").write_text(
        "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 one 1.0\n"
    )
    return tmp_path


MISTAKES = {
    "no file": (["spmv", "{}/none.mtx"], "none.mtx: No such file"),
    "a folder": (["spmv", "{}"], "Is a directory"),
    "no matrix": (["spmv", "{}/other.txt"], "it begins with"),
    "truncated": (["spmv", "{}/truncated.mtx"], "truncated"),
    "cut gzip": (["spmv", "{}/cut.mtx.gz"], "cut.mtx.gz"),
    "bad line": (["spmv", "{}/word.mtx"], "line 3"),
    "method": (["fft", "--comm", "rma-magic"], "the methods are mpi, "),
    "one of two methods": (["spmv", "--comm", "p2p,rma-magic"], "rma-magic"),
    "shape and grid": ([*SMALL, "--grid", "3", "3"], "(3, 3"),
    "shape": (["fft", "--shape", "8", "zero", "8"], "'zero' is not a whole number"),
    "grid of one axis": (["fft", "--shape", "8", "--grid", "1"], "leave out grid"),
    "info": ([*SMALL, "--info", "slots=9"], "slots"),
    "option": ([*SMALL, "--fast"], "--fast"),
    "command": (["fftw"], "fftw"),
    "no command": ([], "COMMAND"),
    "no matrices": (["bench", "spmv", "--matrices", "{}/empty"], "no Matrix Market files in"),
    "no program": (["bench", "programs", "{}/other.txt", "{}/none.py"], "none.py: No such file"),
    "two uses": (["spmv", "{}/word.mtx", "--json", "{}/word.mtx"], "word.mtx is named twice"),
    "json": ([*SMALL, "--json", "{}/none/out.json"], "No such file"),
}


def failed(finished: commands.Finished, fragment: str) -> None:
    ran(finished, 2)
    assert len(finished.sentences) == 1, finished
    assert fragment in finished.sentences[0], finished
    assert "Traceback" not in finished.out + finished.err, finished
    assert "Abort" not in finished.out + finished.err, finished
    assert finished.out.strip() == ""


@pytest.mark.one_mpi
@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake, ranks, files):
    """Without a launcher, and in a job."""
    if ranks is None and mistake == "info":
        pytest.skip("one rank has nobody to exchange with")
    words, fragment = MISTAKES[mistake]
    finished = commands.onesided(*(word.format(files) for word in words), ranks=ranks)
    failed(finished, fragment)
    assert ranks or finished.err.count("\n") == 1, finished


@pytest.mark.some(2)
@pytest.mark.parametrize("mistake", ["truncated", "option"])  # with MPI and without it
@pytest.mark.parametrize("start", ["under mpiexec", "without a launcher", "by --ranks"])
def test_a_mistake_is_one_sentence_of_a_process_of_its_own(mistake, start, files):
    words, fragment = MISTAKES[mistake]
    words = [*(word.format(files) for word in words), *(["--ranks", "4"] if "--" in start else [])]
    ranks = 2 if "mpiexec" in start else None
    finished = commands.onesided(*words, ranks=ranks, fresh=True)
    failed(finished, fragment)
    assert ranks or finished.err.count("\n") == 1, finished


def test_ranks_that_differ_from_the_job():
    failed(commands.onesided(*SMALL, "--ranks", "3", ranks=2), "--ranks 3 inside a job of 2 ranks")


@pytest.mark.one_mpi
def test_help_is_printed_once():
    finished = ran(commands.onesided("fft", "--help", ranks=2))
    assert finished.out.count("usage: onesided fft") == 1
    for option in ("--shape", "--dtype", "--grid", "--comm", "--iterations", "--verify", "--json"):
        assert option in finished.out


@pytest.mark.one_mpi
def test_json_tells_versions_pattern_and_machine(tmp_path):
    path = tmp_path / "out.json"
    words = [*SMALL, "--comm", "p2p,rma-fence", "--verify", "--json", str(path)]
    assert "1 node, 2 ranks" in ran(commands.onesided(*words, ranks=2)).out
    found = json.loads(path.read_text())
    assert found["command"] == "fft"
    assert found["pattern"]["shapes"] == [[12, 10, 9]]
    assert found["settings"]["comm"] == "p2p,rma-fence"
    assert {"onesided", "numpy", "mpi4py", "mpi library"} <= set(found["versions"])
    assert found["machine"]["ranks"] == 2
    assert found["machine"]["ranks_per_node"] == [2]
    assert found["verified"] is True
    assert [row["labels"]["method"] for row in found["rows"]] == ["mpi", "p2p", "rma-fence"]
    for row in found["rows"]:
        assert len(row["times_s"]) == row["iterations"] == 2
        assert row["quartile_1_s"] <= row["median_s"] <= row["quartile_3_s"]
        assert row["setup_s"] > 0
        assert set(row["parts"]) == {"forward", "backward"}
        assert row["verified"] is True
    assert found["rows"][0]["break_even"] is None
    assert found["rows"][1]["break_even"] == "never" or found["rows"][1]["break_even"] >= 0
    text = path.read_text()
    assert os.uname().nodename not in re.findall(r"\w+", text)
    assert str(Path.cwd()) not in text
