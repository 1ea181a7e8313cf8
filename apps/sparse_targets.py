"""What the sparse matrix has to reach, and against whom: the numbers of the benchmark's table."""

from __future__ import annotations

import re
from pathlib import Path

from onesided.apps.selection import BASELINE
from onesided.apps.targets import Target

PETSC, SCIPY = "PETSc", "SciPy"
RANKS = 2  # for which the targets hold
ONE_SIDED = "rma-"  # how the names of the one-sided methods begin

PETSC_BOUND = 0.85  # most that a product may take, in times of PETSc's
SCIPY_BOUND = 1.7  # times as fast as SciPy's serial product, where a core's cache is too small
NOT_SLOWER = 1.02  # what can still be called "not slower" where times are measured

HALO_SECONDS = 15e-6  # what is not local arithmetic in a product, on one node
HALO_ENTRIES = 4096  # doubles from the neighbor, then
CG_BOUND = 1.15  # an iteration, in times of one product and the traffic of its vectors
READ_ENTRIES = 5_000_000
READ_BEFORE = 5.0  # times as fast as SciPy's reader before 1.12

HALO_AIM = Target(f"{HALO_SECONDS * 1e6:.0f} us", 1.0, least=False)
CG_AIM = Target("product + vectors", CG_BOUND, least=False)
READ_AIM = Target("mmread", NOT_SLOWER, least=False)
READ_BEFORE_AIM = Target("mmread before 1.12", READ_BEFORE)

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL_CACHE = 2 << 20
SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def product_aims(method: str, nbytes: int, cache: int) -> dict[str, tuple[Target, bool]]:
    """Local. By opponent what a product is compared with, and whether that is a target.

    ``nbytes``: the arrays of the whole matrix; ``cache``: bytes of the cache of one core.
    """
    one_sided = method.startswith(ONE_SIDED)
    return {
        PETSC: (Target(PETSC, PETSC_BOUND, least=False), True),
        BASELINE: (Target(BASELINE, NOT_SLOWER, least=False), one_sided),
        SCIPY: (Target(SCIPY, SCIPY_BOUND), nbytes > cache),
    }


def core_cache(folder: Path = CACHES) -> int:
    """Local. Bytes of the largest cache that belongs to one core alone; 2 MiB if that is unknown.

    Hardware threads of a core share its caches, and count as one.
    """
    try:
        mine = (folder.parent / "topology" / "thread_siblings_list").read_text()
    except OSError:
        mine = ""
    sizes = [_own_size(entry, mine) for entry in sorted(folder.glob("index*"))]
    return max(sizes, default=0) or USUAL_CACHE


def _own_size(entry: Path, siblings: str) -> int:
    """Bytes of a cache; 0 where another core shares it, or it cannot be read."""
    try:
        size = re.fullmatch(r"(\d+)([KMG]?)", (entry / "size").read_text().strip())
        shared = (entry / "shared_cpu_list").read_text()
    except OSError:
        return 0
    alone = re.fullmatch(r"\d+\s*", shared) is not None or shared == siblings
    return int(size[1]) * SUFFIXES[size[2]] if size and alone else 0
