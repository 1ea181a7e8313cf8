"""What a distributed line is sent from and received into, and the exchanges between the two.

All exchanges of a line lead from one piece of memory, *sent*, to another, *received*, and every
local step leads from *received* to *sent*. Two pieces are enough for any chain of them: a rank's
data have left when its ``Wait`` returns, and peers write into *received* only between its owner's
``Start`` and ``Wait``, so either may be overwritten at all other times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Alltoallv_init, Alltoallw_init, Request
from onesided.collectives.agreement import agreed
from onesided.collectives.errors import RequestError
from onesided.pencilfft.commons import Piece
from onesided.pencilfft.decomposition import Boxes

#: Shape and dtype of an array.
Form = tuple[tuple[int, ...], np.dtype[Any]]


class LineWorkspace:
    """The two pieces of memory and the requests of a line; owns them, borrows the communicator."""

    def __init__(
        self, comm: MPI.Comm, forms: Sequence[Form], method: str, info: Mapping[str, str] | None
    ) -> None:
        """Collective. Either piece can hold any of ``forms``; errors are agreed."""
        self.comm, self._method, self._info = comm, method, info
        #: The persistent requests in the order of their initialization.
        self.requests: list[Request] = []
        nbytes = max(_nbytes(form) for form in forms)
        self._received: Piece | None = None
        with agreed(comm):
            self._sent: NDArray[np.uint8] | None = np.empty(nbytes, np.uint8)
        self._received = Piece(comm, nbytes)

    def sent(self, form: Form) -> NDArray[Any]:
        """Local. The piece that is sent from, as an array."""
        if self._sent is None:
            raise RequestError("the memory of this line was given back")
        array: NDArray[Any] = self._sent[: _nbytes(form)].view(form[1]).reshape(form[0])
        return array

    def received(self, form: Form) -> NDArray[Any]:
        """Local. The piece that is received into, as an array."""
        if self._received is None:
            raise RequestError("the memory of this line was given back")
        return self._received.array(*form)

    def connect(self, send: Form, to: Boxes, receive: Form, of: Boxes) -> Request:
        """Collective. A request that moves boxes from *sent* to *received*."""
        request = Alltoallw_init(
            self.comm,
            [self.sent(send), to],
            [self.received(receive), of],
            method=self._method,
            info=self._info,
        )
        self.requests.append(request)
        return request

    def connect_edges(self, send: NDArray[Any], counts: list[int]) -> Request:
        """Collective. A request that moves single elements; it owns what it receives into."""
        request = Alltoallv_init(
            self.comm, [send, counts], None, method=self._method, info=self._info
        )
        self.requests.append(request)
        return request

    def free(self) -> None:
        """Collective. Give back requests and memory, in that order; twice is once."""
        while self.requests:
            self.requests.pop(0).Free()
        received, self._sent, self._received = self._received, None, None
        if received is not None:
            received.give()


def _nbytes(form: Form) -> int:
    shape, dtype = form
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
