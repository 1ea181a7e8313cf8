"""A method that is registered from outside: it does what the others do."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np

from onesided.collectives import (
    Alltoallv_init,
    Alltoallw_init,
    Method,
    MethodError,
    PatternError,
    methods,
    register,
)
from onesided.collectives.testing import check_transport

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "extending" / "transport.md"


def added():
    """The page's module; its method is registered once."""
    if "messages" in methods():
        return
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.splitlines()) <= 62, "the page promises a file of about sixty lines"
    module = types.ModuleType("messages_of_the_page")
    sys.modules[module.__name__] = module
    exec(compile(code, str(PAGE), "exec"), vars(module))
    module.add()


def case_boxes(comm):
    added()
    size, rank = comm.size, comm.rank
    send, recv = np.full((3, 2 * size), rank), np.full((2 * size, 3), -1)
    boxes = [(slice(0, 3), slice(2 * p, 2 * p + 2)) for p in range(size)]
    back = [(slice(2 * p, 2 * p + 2), slice(0, 3)) for p in range(size)]
    with Alltoallw_init(comm, [send, boxes], [recv, back], method="messages") as request:
        request.Start()
        request.Wait()
    assert np.array_equal(recv, np.repeat(np.arange(size), 2)[:, None] * np.ones(3, int))


def case_the_table(comm):
    """The rows of the table take it as they take ours; what they find is told."""
    added()
    assert check_transport(comm, "messages") == {}
    assert check_transport(comm, "messages", {"ranks_per_node": "1"}) == {}
    module = sys.modules["messages_of_the_page"]

    class Forgets(module.Messages):
        """The last rank does not unpack what has come."""

        def finish(self, slot):
            if comm.rank < comm.size - 1:
                super().finish(slot)

    module.Forgets = Forgets
    if "forgets" not in methods():
        register(Method("forgets", f"{module.__name__}:Forgets", True, False, ""))
    try:
        check_transport(comm, "forgets")
    except AssertionError as error:
        assert "Gather" in str(error) or "Scatter" in str(error), error
    else:
        raise AssertionError("lost data were not noticed")


def case_a_name_is_taken_once(comm):
    added()
    for operation in ("exchange", "nothing"):
        try:
            register(Method("messages", "nowhere:Nothing", True, False, ""), operation)
        except MethodError as error:
            assert "messages" in str(error) or "no operation" in str(error)
        else:
            raise AssertionError("the method was registered twice")
    try:
        Alltoallv_init(comm, [np.zeros(1), [1] * (comm.size + 1)], None, method="messages")
    except PatternError as error:
        assert "entries" in str(error)
    else:
        raise AssertionError("counts that do not fit were taken")
