"""The tail of every initialization function: what ranks agree on before anything is built.

A function says how this rank reads its buffers, and how ranks come from that to an operation; the
rest is the same for exchanges, broadcasts and reductions. What has been made can be made again for
other buffers: the pattern is known then, and so is the method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpi4py import MPI

from onesided.collectives import registry
from onesided.collectives.agreement import agree
from onesided.collectives.context import Context
from onesided.collectives.hints import Hints
from onesided.collectives.operation import Operation
from onesided.collectives.registry import Method
from onesided.collectives.request import Request, build

Info = Mapping[str, str] | MPI.Info | None

#: Why a method was taken that the environment names.
BY_ENVIRONMENT = registry.VARIABLE


@dataclass(frozen=True)
class Call:
    """An initialization function, without its buffers.

    ``name`` is the same on all ranks, with the root where there is one; ``kind`` is that of its
    methods. ``read(context, *buffers)`` is local, and returns what this rank has read, of which
    ``words`` must be the same on all ranks. ``match(read, method, context, hints, before)`` is
    collective, and returns the operation; ``before`` is one of the same pattern, or None.
    """

    name: str
    kind: str
    read: Callable[..., Any]
    match: Callable[[Any, Method, Context, Hints, Any], Operation]
    words: Callable[[Any], str] = lambda read: ""


def initialize(
    call: Call, comm: MPI.Comm, buffers: tuple[Any, ...], method: str, info: Info
) -> Request:
    """Collective. One agreement, what the ranks tell each other, and what the transport needs."""
    began = time.perf_counter()
    context = Context.of(comm)
    hints, error, read, words, chosen = Hints(), None, None, "", ""
    try:
        kind = registry.wanted(method, call.kind)
        chosen, hints = kind.name, Hints.of(info, comm)
        read = call.read(context, *buffers)
        words = call.words(read)
    except Exception as problem:
        error = problem
    agree(context.comm, error, f"{call.name} {chosen} {hints} {words}".rstrip())
    context.node()  # these are collective where they are the first
    context.node(hints.ranks_per_node)
    operation = call.match(read, kind, context, hints, None)
    request: Request
    if kind.chooses:
        request = kind.load()(operation)
    else:
        request = build(operation, kind, operation.buffers())
        request.chosen_by = "" if chosen == method else BY_ENVIRONMENT
    return _finished(call, request, began)


def _again(call: Call, request: Request, *buffers: Any) -> Request:
    """Collective. The same pattern and method with other buffers."""
    began = time.perf_counter()
    before: Operation = request.operation
    context, hints = before.context, before.hints
    error, read, words = None, None, ""
    try:
        kind = registry.find(before.method, call.kind)
        read = call.read(context, *buffers)
        words = call.words(read)
    except Exception as problem:
        error = problem
    agree(context.comm, error, f"{call.name} like request {before.number} {words}".rstrip())
    operation = call.match(read, kind, context, hints, before)
    made = build(operation, kind, operation.buffers())
    made.chosen_by = request.chosen_by
    return _finished(call, made, began)


def _finished(call: Call, request: Request, began: float) -> Request:
    request.again = partial(_again, call)
    request.setup_time = time.perf_counter() - began
    return request
