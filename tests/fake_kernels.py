"""Tasks, and kernels that take as long as they are told, for the tests of choosing among them."""

from __future__ import annotations

from time import thread_time

import numpy as np
import scipy.fft

from onesided.pencilfft.kernels.protocol import Layout, Task

SLOW = 3e-3


def task_on(source, target=None, kind="c2c", axis=0, scale=0, **more):
    """A task on these arrays; in place without a target."""
    target_of = source if target is None else target
    options = {"forward": True, "orthogonal": False, **more}
    return Task(
        kind,
        axis,
        scale=scale,
        source=Layout.of(source),
        target=Layout.of(target_of),
        in_place=target is None,
        **options,
    )


class Fake:
    """A kernel that needs at least this processor time, or another one where lines are dense."""

    def __init__(self, name, seconds, dense_seconds=None, kinds=("c2c", "r2c", "c2r")):
        self.name, self.kinds, self.planned = name, kinds, []
        self.seconds = seconds, seconds if dense_seconds is None else dense_seconds

    def plan(self, task, effort):
        if task.kind not in self.kinds:
            return None
        self.planned.append((task, effort))
        dense = task.source.strides[task.axis] == np.dtype(task.source.char).itemsize
        seconds = self.seconds[dense]

        def run(source, target):
            end = thread_time() + seconds
            while thread_time() < end:
                pass
            target[...] = scipy.fft.fft(source, axis=task.axis)

        return run
