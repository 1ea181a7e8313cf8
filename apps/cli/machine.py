"""What a result must say about where it was measured: versions, cores, nodes and ranks.

Never the name of a machine, of a person, or of a folder.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mpi4py import MPI

from onesided.collectives.context import Context
from onesided.collectives.hardware import processor, usable_cores

#: How the names of variables begin that have a say in a time.
VARIABLES = (
    "FI_", "I_MPI_", "KMP_", "MKL_", "MPI4PY_", "MPICH_", "MPIR_", "MV2_", "NUMBA_", "OMPI_MCA_",
    "OMP_", "ONESIDED_", "OPENBLAS_", "PMIX_MCA_", "UCX_",
)  # fmt: skip
#: How those begin that differ from job to job: what --ranks, and Open MPI's launcher, tell a job.
BETWEEN = ("ONESIDED_COLUMNS", "ONESIDED_GOES_ON", "OMPI_MCA_ess", "OMPI_MCA_orte",
           "OMPI_MCA_initial_wdir")  # fmt: skip
SOURCE = Path(__file__).resolve().parents[2]
ROOMS = ("collectives", "pencilfft", "sparse", "apps")
PACKAGES = (
    "onesided", "numpy", "scipy", "mpi4py", "ducc0", "pyfftw", "mkl", "mkl-fft",
    "mpi4py-fft", "numba", "shenfun", "pySDC", "pylops-mpi",
)
BUILDS = ("mpich", "openmpi", "mpiabi", "impi")  # what a wheel of mpi4py has in its file names
THREAD_LEVELS = {
    MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled",
    MPI.THREAD_SERIALIZED: "serialized", MPI.THREAD_MULTIPLE: "multiple",
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """How the ranks of a communicator lie on nodes: ranks per node, in order of lowest rank."""

    ranks_per_node: tuple[int, ...]

    @classmethod
    def of(cls, comm: MPI.Comm) -> Layout:
        """Collective."""
        return cls(Context.of(comm).node().counts)

    def __str__(self) -> str:
        nodes, ranks = len(self.ranks_per_node), sum(self.ranks_per_node)
        if nodes == 1:
            return f"1 node, {ranks} rank{'s' if ranks > 1 else ''}"
        per_node = sorted(set(self.ranks_per_node))
        span = f"{per_node[0]}" if len(per_node) == 1 else f"{per_node[0]} to {per_node[-1]}"
        return f"{nodes} nodes, {span} ranks each"


def library() -> str:
    """Local. Name and version of the MPI library, without what its builder added."""
    words = MPI.Get_library_version().splitlines()[0].split(",")[0]
    return " ".join(words.replace("Version:", "").split())


def versions() -> dict[str, str]:
    """Local. Versions of everything that has a say in a time; ``mpi abi`` is the standard one."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    found["commit"] = commit()
    built_for = Path(MPI.__file__).name.split(".")[1]
    if built_for in BUILDS:
        found["mpi4py built for"] = built_for
    found |= {"mpi library": library(), "mpi standard": ".".join(map(str, MPI.Get_version())),
              "mpi abi": "none"}  # fmt: skip
    with suppress(AttributeError, NotImplementedError):
        major, minor = MPI.Get_abi_version()
        if major >= 0:
            found["mpi abi"] = f"{major}.{minor}"
    return found


def commit() -> str:
    """Local. Of the checkout that this program runs from; ``unknown`` where it is installed.

    It ends in ``-modified`` where files of it have been changed.
    """
    git = shutil.which("git")
    if git is None or not (SOURCE / ".git").exists():
        return "unknown"
    head, changed = (
        subprocess.run([git, "-C", str(SOURCE), *words], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, check=False)
        for words in (["rev-parse", "HEAD"], ["diff", "--quiet", "HEAD", "--", *ROOMS])
    )  # fmt: skip
    if head.returncode:
        return "unknown"
    return head.stdout.strip() + ("-modified" if changed.returncode == 1 else "")


def code() -> str:
    """Local. A hash of every source file of this package, whatever was committed."""
    found = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*")):
            if path.suffix in (".py", ".c", ".h"):
                found.update(str(path.relative_to(SOURCE)).encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


def environment() -> dict[str, str]:
    """Local. The variables that MPI, threads and this package read."""
    return {
        name: "a path" if os.sep in value else value
        for name, value in sorted(os.environ.items())
        if name.startswith(VARIABLES) and not name.startswith(BETWEEN)
        and not name.endswith("HOSTNAME")
    }


def circumstances(comm: MPI.Intracomm, *, now: bool = False) -> dict[str, object]:
    """Collective. What may differ from one run to the next on the same machine, for JSON.

    ``binding``: the cores of every rank. ``environment``: that of rank 0. ``load``: processes that
    wanted a core, over the last minute; ``date`` is UTC. All are those of the call with ``now``, as
    a command begins, before the ranks themselves made load.
    """
    if now or not _begun:
        _begun.update({
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "load": os.getloadavg()[0],
            "binding": comm.allgather(sorted(usable_cores())),
            "environment": environment(),
        })  # fmt: skip
    return dict(_begun)


_begun: dict[str, object] = {}


def version_lines() -> str:
    """Local. This, its MPI, and what it stands on, for ``--version``."""
    found = versions()
    below = ", ".join(f"{name} {found[name]}" for name in ("python", "mpi4py", "numpy", "scipy"))
    mpi = f"{found['mpi library']} (MPI {found['mpi standard']})"
    return f"onesided {found.get('onesided', 'from its sources')}, {mpi}\n{below}\n"


def facts(comm: MPI.Intracomm) -> dict[str, object]:
    """Collective. The machine in a form for JSON; cores and processor are those of rank 0.

    ``all_cores`` is how many the ranks together may use, on so many ``hosts``: virtual nodes of
    one machine are one host, and share its cores.
    """
    layout, usable = Layout.of(comm), sorted(usable_cores())
    everyone = comm.allgather([(_boot(), core) for core in usable])
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(), "cores": len(usable),
        "all_cores": len({core for each in everyone for core in each}),
        "hosts": len({boot for each in everyone for boot, _ in each}),
        "ranks": comm.size, "nodes": len(layout.ranks_per_node),
        "ranks_per_node": list(layout.ranks_per_node),
        "thread_level": THREAD_LEVELS[MPI.Query_thread()],
    }  # fmt: skip


def _boot() -> str:
    """Local. What differs from one running kernel to another; it is compared, and never shown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()
