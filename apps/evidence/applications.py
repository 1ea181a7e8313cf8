"""``onesided bench apps``: applications end to end, by every method and by others.

A Fourier transform forward and backward, against mpi4py-fft, and iterations of conjugate
gradients, against PETSc, with the time apart in set-up, communication and compute.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from mpi4py import MPI

from onesided.apps.evidence.gradients import REMARK as CG_REMARK
from onesided.apps.evidence.gradients import gradients
from onesided.apps.evidence.transforms import REMARK as FFT_REMARK
from onesided.apps.evidence.transforms import transforms
from onesided.apps.options import settings
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, Row, check_json
from onesided.apps.selection import chosen
from onesided.apps.spmv import FAILED
from onesided.apps.verdict import Verdict, conclusion

Tick = Callable[[], None]
REMARK = (
    "Communication: mean over the ranks; compute: the rest of the time of the slowest. Break-even: "
    "runs after which the set-up has paid."
)
#: By the words of ``--applications``: what is run, and the remark about it.
APPLICATIONS: dict[
    str, tuple[Callable[[MPI.Intracomm, Namespace, Sequence[str], float, Tick], list[Row]], str]
] = {
    "fft": (transforms, FFT_REMARK),
    "cg": (gradients, CG_REMARK),
}


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    names = chosen(options.comm)
    check_json(comm, options)
    wanted = list(dict.fromkeys(options.applications))
    pattern = {"ranks": comm.size, "applications": wanted, "steps": options.steps}
    given = settings(options)
    if options.matrix is not None:
        given["matrix"] = Path(options.matrix).name
    report = Report("bench apps", given, pattern)
    out = console(options.terminal) if comm.rank == 0 else None
    share = options.seconds / len(wanted)
    with progress(out, "running", len(wanted) * options.iterations) as tick:
        for name in wanted:
            application, remark = APPLICATIONS[name]
            report.rows += application(comm, options, names, share, tick)
            report.remarks.append(remark)
    report.remarks += [REMARK, conclusion(_verdicts(report), "serial transforms, and residuals")]
    report.finish(comm, out, options.json)
    return FAILED if report.verified is False else 0


def _verdicts(report: Report) -> list[Verdict]:
    return [row.verdict for row in report.rows if row.verdict is not None]
