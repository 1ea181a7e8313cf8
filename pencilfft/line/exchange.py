"""The exchanges of a distributed line: block to columns, columns to rows, columns to block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import Request
from onesided.pencilfft.decomposition import block
from onesided.pencilfft.line.chunks import scaled_copy
from onesided.pencilfft.line.layout import LineLayout, box
from onesided.pencilfft.line.workspace import Form, LineWorkspace


class ToColumns:
    """Collective. From blocks of a line to the columns of its matrix, in *received*."""

    def __init__(self, workspace: LineWorkspace, layout: LineLayout, dtype: np.dtype[Any]) -> None:
        """Collective."""
        body, columns = line_forms(layout, dtype)
        #: Which elements a rank has on either side.
        self.layout = layout
        self._slice = layout.body_slice()
        self._body = workspace.sent(body)
        #: The matrix, this rank's columns of it; what its last row lacks is not defined.
        self.columns = workspace.received(columns)
        #: The persistent requests: of complete rows, and of edges, where there are any.
        self.requests: list[Request] = []
        if layout.has_body:
            boxes = layout.body_boxes(), layout.column_boxes()
            self.requests.append(workspace.connect(body, boxes[0], columns, boxes[1]))
        self._places, _ = layout.column_edges()
        self._picked, counts = layout.flat_edges()
        self._edges = np.empty(len(self._picked), dtype)
        if layout.has_edges:
            self.requests.append(workspace.connect_edges(self._edges, counts))

    def __call__(self, source: NDArray[Any]) -> None:
        """Collective. ``source`` is this rank's block of the line."""
        rows = source[self._slice].reshape(self._body.shape)
        for place, column in self.layout.order:
            np.copyto(self._body[:, place], rows[:, column])
        np.take(source, self._picked, out=self._edges, mode="clip")
        received = _exchange(self.requests)
        if len(self._places):
            self.columns.reshape(-1)[self._places] = received


class ToFlat:
    """Collective. From the columns of a matrix, in *sent*, to blocks of its line."""

    def __init__(self, workspace: LineWorkspace, layout: LineLayout, dtype: np.dtype[Any]) -> None:
        """Collective."""
        body, columns = line_forms(layout, dtype)
        #: Which elements a rank has on either side.
        self.layout = layout
        self._slice = layout.body_slice()
        self._body = workspace.received(body)
        #: The matrix, this rank's columns of it.
        self.columns = workspace.sent(columns)
        #: The persistent requests: of complete rows, and of edges, where there are any.
        self.requests: list[Request] = []
        if layout.has_body:
            boxes = layout.column_boxes(), layout.body_boxes()
            self.requests.append(workspace.connect(columns, boxes[0], body, boxes[1]))
        self._places, _ = layout.flat_edges()
        self._picked, counts = layout.column_edges()
        self._edges = np.empty(len(self._picked), dtype)
        if layout.has_edges:
            self.requests.append(workspace.connect_edges(self._edges, counts))

    def __call__(self, target: NDArray[Any], factor: float) -> None:
        """Collective. Fills ``target``, this rank's block of the line, multiplied by ``factor``."""
        np.take(self.columns.reshape(-1), self._picked, out=self._edges, mode="clip")
        np.multiply(self._edges, factor, out=self._edges)
        received = _exchange(self.requests)
        rows = target[self._slice].reshape(self._body.shape)
        for place, column in self.layout.order:
            scaled_copy(self._body[:, place], rows[:, column], factor)
        if len(self._places):
            target[self._places] = received


class Crossing:
    """Collective. From the columns of a matrix, in *sent*, to its rows, in *received*.

    Columns are those of ``layout``, of the ``rows`` rows every rank gets a block. The way back
    leads from rows in *sent* to columns in *received*.
    """

    def __init__(
        self,
        workspace: LineWorkspace,
        layout: LineLayout,
        rows: int,
        dtype: np.dtype[Any],
        back: bool = False,
    ) -> None:
        """Collective."""
        blocks = [block(rows, layout.parts, index) for index in range(layout.parts)]
        first, last = blocks[layout.index]
        here = [box(span, (0, layout.columns)) for span in blocks]
        there = [box((0, last - first), columns) for columns in layout.cuts]
        ends = list(zip(crossing_forms(layout, rows, dtype), (here, there), strict=True))
        (send, to), (receive, of) = ends[::-1] if back else ends
        #: What is sent, to be filled before a call.
        self.sent = workspace.sent(send)
        #: What a call receives.
        self.received = workspace.received(receive)
        #: The persistent request, as a list.
        self.requests = [workspace.connect(send, to, receive, of)]

    def __call__(self) -> None:
        """Collective. Exchange; both arrays are this rank's until the next exchange."""
        _exchange(self.requests)


def _exchange(requests: list[Request]) -> Any:
    """Collective. What the last request has received."""
    for request in requests:
        request.Start()
    received = None
    for request in requests:
        received = request.Wait()
    return received


def line_forms(layout: LineLayout, dtype: np.dtype[Any]) -> tuple[Form, Form]:
    """Local. Of the complete rows in this rank's block, and of its columns."""
    first, last = layout.body(layout.index)
    return ((last - first, layout.width), dtype), ((layout.rows, layout.columns), dtype)


def crossing_forms(layout: LineLayout, rows: int, dtype: np.dtype[Any]) -> tuple[Form, Form]:
    """Local. Of this rank's columns of a matrix with ``rows`` rows, and of its block of them."""
    first, last = block(rows, layout.parts, layout.index)
    return ((rows, layout.columns), dtype), ((last - first, layout.width), dtype)
