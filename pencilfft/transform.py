"""One direction of a plan: local transforms and transposes in turn, user array to user array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError, RequestError

from .decomposition import Pencil, Stage
from .distarray import DistArray
from .kernels.protocol import Kernel
from .local import LocalTransform, Place
from .transpose import Transpose


class Transform:
    """Called as ``plan.forward(u)`` or ``plan.backward(u_hat)``.

    The input is read once and left as it is, the output is written once, and nothing is allocated
    when ``output_array`` is given. ``input_pencil`` and ``output_pencil`` say which blocks the
    two are, ``input_dtype`` and ``output_dtype`` of what.
    """

    def __init__(
        self,
        name: str,
        pencils: tuple[Pencil, Pencil],
        dtypes: tuple[np.dtype[Any], np.dtype[Any]],
        locals_: Sequence[LocalTransform],
        transposes: Sequence[Transpose],
        stages: Sequence[NDArray[Any]],
        scale: int,
    ) -> None:
        self.name = name
        self.input_pencil, self.output_pencil = pencils
        self.input_dtype, self.output_dtype = dtypes
        self._locals, self._transposes, self._stages = locals_, transposes, stages
        self._scale = scale
        self._input: DistArray | None = None
        needs_work = any(local.needs_work for local in locals_)
        self._work = np.empty(self.input_pencil.subshape, self.input_dtype) if needs_work else None
        self._destroyed = False

    @property
    def input_array(self) -> DistArray:
        """What is transformed when no input is given; made at the first use."""
        if self._input is None:
            self._input = DistArray(self.input_pencil, self.input_dtype, 0)
        return self._input

    def __call__(
        self,
        input_array: NDArray[Any] | None = None,
        output_array: NDArray[Any] | None = None,
        normalize: bool | None = None,
    ) -> Any:
        """Collective. Transform the blocks of all ranks and return ``output_array``.

        ``input_array`` and ``output_array`` have this rank's local shapes and the dtypes of the
        plan, in any memory order; without an output a new :class:`DistArray` is returned, without
        an input :attr:`input_array` is read. ``normalize=True`` divides by N, the product of the
        lengths of the transformed axes, False does not scale; None does what the ``norm`` of the
        plan says. A wrong array raises :class:`PatternError` on this rank, before anything is
        started.
        """
        if self._destroyed:
            raise RequestError(f"{self.name} of a plan that was destroyed")
        given = self.input_array if input_array is None else input_array
        result: NDArray[Any]
        if output_array is None:
            result = DistArray(self.output_pencil, self.output_dtype)
        else:
            result = output_array
        source = _block("input", given, self.input_pencil, self.input_dtype)
        target = _block("output", result, self.output_pencil, self.output_dtype)
        self._check_memory(source, target)
        self._run(source, target, self._scale if normalize is None else 2 * bool(normalize))
        return result

    def _run(self, source: NDArray[Any], target: NDArray[Any], scale: int) -> None:
        last = len(self._locals) - 1
        for i, local in enumerate(self._locals):
            filled = self._stages[i] if i else source
            local(filled, target if i == last else self._stages[i], scale, self._work)
            if i < last:
                self._transposes[i]()

    def _check_memory(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        if not target.flags.writeable:
            raise PatternError(f"the output of {self.name} is read-only")
        if self._transposes or not np.may_share_memory(source, target):
            return
        same = source.__array_interface__ == target.__array_interface__
        if not same and np.shares_memory(source, target):
            raise PatternError(f"input and output of {self.name} overlap without being the same")

    def destroy(self) -> None:
        """Local. Refuse all calls from now on and drop the arrays."""
        self._destroyed = True
        self._stages, self._work, self._input = (), None, None


def _block(what: str, array: Any, pencil: Pencil, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array as a plain ndarray, if it has the shape and dtype of the block."""
    if not isinstance(array, np.ndarray):
        raise PatternError(f"the {what} is a {type(array).__name__}, not a NumPy array")
    if array.shape != pencil.subshape:
        raise PatternError(
            f"the {what} has shape {array.shape}, this rank's block has {pencil.subshape} "
            f"(of {pencil.shape})"
        )
    if array.dtype != dtype:
        raise PatternError(f"the {what} has dtype {array.dtype}, the plan {dtype}")
    return array.view(np.ndarray)


def chain(
    kernel: Kernel,
    stages: Sequence[Stage],
    forward: bool,
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
) -> list[LocalTransform]:
    """Local. The local transforms of one direction, one per stage.

    ``dtypes`` are those of the user's input and output. A stage in the middle works in place; the
    last one works in the stage's own array before it writes the user's; so does the first.
    """
    spectral = dtypes[1] if forward else dtypes[0]
    ordered = list(stages) if forward else list(reversed(stages))
    last = len(ordered) - 1
    result = []
    for i, stage in enumerate(ordered):
        shapes = (stage.before.subshape, stage.after.subshape)
        kinds = (dtypes[0] if i == 0 else spectral, dtypes[1] if i == last else spectral)
        inner: Place = "source" if i == last else "target"
        if last == 0:
            inner = "work" if kinds[1].kind == "f" else "target"
        result.append(
            LocalTransform(
                kernel,
                stage.axes if forward else stage.axes[::-1],
                forward,
                shapes if forward else shapes[::-1],
                kinds,
                inner,
                in_place=0 < i < last,
            )
        )
    return result
