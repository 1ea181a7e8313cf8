"""The table of the FFT's benchmark: cases, opponents, and what is to be reached."""

from __future__ import annotations

from dataclasses import dataclass, replace

from onesided.apps.cli.statistics import Target
from onesided.apps.tools.fft import FFTW_MPI as FFTW_MPI
from onesided.apps.tools.fft import LOCAL as LOCAL
from onesided.apps.tools.fft import PEER as PEER

BUDGET = Target("30 ms", 1.0, least=False, seconds=0.03)
#: With what ours can be compared, by the words of ``--against``.
OPPONENTS = {"mpi4py-fft": PEER, "local-work": LOCAL, "fftw-mpi": FFTW_MPI}

#: Over a slow link: most that the best any-order one-sided method may take, in times of ``mpi``,
#: and ``auto`` in times of the best method.
SLOW_LINK = 1.05


@dataclass(frozen=True)
class Case:
    """A transform, the number of ranks for which its targets hold, and a grid if it has its own."""

    shape: tuple[int, ...]
    dtype: str
    targets: tuple[Target, ...]
    ranks: int = 2
    grid: tuple[int, ...] | None = None
    backend: str = "auto"
    #: Of plans: a first one, over mpi4py-fft's; one that is recalled, over 30 ms.
    setups: tuple[Target, ...] = ()

    @property
    def name(self) -> str:
        """Local. Kind and shape, and the kernel if it is named."""
        kind = "c2c" if self.dtype.startswith("complex") else "r2c"
        kernel = "" if self.backend == "auto" else ", FFTW"
        return f"{kind} {'x'.join(map(str, self.shape))}{kernel}"

    def shrunk(self, divisor: int) -> Case:
        """Local. The same with every axis divided, and with no targets: they hold for its size."""
        shape = tuple(max(1, length // divisor) for length in self.shape)
        return self if divisor == 1 else replace(self, shape=shape, targets=(), setups=())


def _faster(times: float) -> Target:
    return Target(PEER, times)


def _all_three(peer: float, fftw_mpi: float, local: float) -> tuple[Target, ...]:
    return _faster(peer), Target(FFTW_MPI, fftw_mpi), Target(LOCAL, local, least=False)


_FIRST = Target(PEER, 2.0, least=False)
_FFTW = "fftw"  # mpi4py-fft's, so that both sides have the same

CASES = (
    Case((64, 64, 64), "float64", _all_three(3.0, 1.4, 1.1), setups=(_FIRST,)),
    Case((128, 128, 128), "float64", _all_three(3.5, 1.8, 0.8), setups=(_FIRST, BUDGET)),
    Case((256, 256, 256), "float64", _all_three(3.5, 2.3, 0.8), setups=(_FIRST,)),
    Case((64, 64, 64), "float64", (_faster(2.2),), backend=_FFTW),
    Case((128, 128, 128), "float64", (_faster(2.5),), backend=_FFTW),
    Case((256, 256, 256), "float64", (_faster(2.5),), backend=_FFTW),
    Case((256, 256, 256), "complex128", (_faster(3.0),)),
    Case((192, 200, 225), "float64", (_faster(3.0),)),
    Case((128, 128, 128), "float64", (_faster(2.5),), ranks=4, grid=(2, 2)),
)


def cases(ranks: int, divisor: int) -> list[Case]:
    """Local. What the table has on so many ranks.

    Where no targets are set for this number of ranks: the cases of two ranks, without targets.
    """
    mine = [case for case in CASES if case.ranks == ranks]
    other = [replace(case, targets=(), setups=()) for case in CASES if case.ranks == 2]
    return [case.shrunk(divisor) for case in mine or other]
