"""Transforms that are begun, gone on with and completed, several at a time."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from cases import parameters, ranks
from cases_fft_errors import failing
from fft_data import close, spectrum, whole

from onesided.collectives import RequestError, UnsupportedError
from onesided.pencilfft import PFFT, newDistArray

OPTIONS = {"method": "rma-notify", "effort": "estimate"}
SHAPE = (6, 8, 10)
GRIDS = {"pencil": None, "slab": (-1,)}


def completed(comm, way, transform):
    """The output of a transform that is under way, completed in this way."""
    while way == "test" and not transform.Test():
        pass
    if way == "mixed" and comm.rank % 2:
        transform.Test()
    return transform.Wait()


@parameters(way=["wait", "test", "mixed"], grid=list(GRIDS), method=["rma-notify", "p2p"],
            char="dD", given=[True, False])
def case_there_and_back(comm, way, grid, method, char, given):
    with PFFT(comm, SHAPE, dtype=char, **{**OPTIONS, "grid": GRIDS[grid], "method": method}) as fft:
        u = newDistArray(fft, False)
        out = (newDistArray(fft), newDistArray(fft, False)) if given else (None, None)
        for turn in range(5):
            values = whole(SHAPE, char, turn)
            u[...] = values[fft.local_slice(False)]
            if comm.rank == turn % comm.size:
                time.sleep(0.005)
            fft.forward.Start(u, out[0])
            u_hat = completed(comm, way, fft.forward)
            close(u_hat, spectrum(values)[fft.local_slice()])
            assert not given or u_hat is out[0]
            if turn % 2:  # blocking ones in between
                close(fft.forward(u), u_hat)
            fft.backward.Start(u_hat, out[1])
            close(completed(comm, way, fft.backward), u)


@parameters(order=["same", "opposite", "by rank"], grid=list(GRIDS), other=["pencil", "line"])
def case_two_plans_interleaved(comm, order, grid, other):
    """Ranks go on with them in whichever order; what the caller does in between is not touched."""
    shape = (comm.size * 12,) if other == "line" else (5, 4, 6)
    with (
        PFFT(comm, SHAPE, dtype=complex, **{**OPTIONS, "grid": GRIDS[grid]}) as one,
        PFFT(comm, shape, dtype=float, **OPTIONS) as two,
    ):
        for turn in range(6):
            values = [whole(SHAPE, "D", turn), whole(shape, "d", turn + 9)]
            plans, results = [one, two], [None, None]
            for plan, mine in zip(plans, values, strict=True):
                plan.forward.Start(mine[plan.local_slice(False)], newDistArray(plan))
            if comm.rank == turn % comm.size:
                time.sleep(0.003)
            turned = order == "opposite" or (order == "by rank" and (comm.rank + turn) % 2)
            for k in (1, 0) if turned else (0, 1):
                if turn % 2:
                    plans[1 - k].forward.Test()
                results[k] = plans[k].forward.Wait()
            for plan, mine, found in zip(plans, values, results, strict=True):
                close(found, spectrum(mine)[plan.local_slice()])


@ranks(at_least=2)
def case_every_rank_waits_for_another_first(comm):
    """Of two plans whose later transposes are begun in a Wait; and another begins meanwhile."""
    shape = (comm.size * 12,)
    with (
        PFFT(comm, shape, dtype=complex, **OPTIONS) as one,
        PFFT(comm, shape, dtype=complex, **OPTIONS) as two,
        PFFT(comm, SHAPE, dtype=complex, **OPTIONS) as third,
    ):
        for turn in range(6):
            values = whole(shape, "D", turn)
            for plan in (one, two):
                plan.forward.Start(values[plan.local_slice(False)])
            plans = [one, two] if (comm.rank + turn) % 2 else [two, one]
            if comm.rank % 2:
                close(plans.pop(0).forward.Wait(), spectrum(values)[one.local_slice()])
            third.forward(1.0)
            for plan in plans:
                close(plan.forward.Wait(), spectrum(values)[plan.local_slice()])


def case_misuse(comm):
    with PFFT(comm, SHAPE, **OPTIONS) as plan:
        u = newDistArray(plan, False, val=1)
        assert plan.forward.Test()
        with pytest.raises(RequestError, match="no forward transform"):
            plan.forward.Wait()
        plan.forward.Start(u)
        for call in (
            lambda: plan.forward.Start(u), lambda: plan.forward(u), plan.backward, plan.destroy,
        ):  # fmt: skip
            with pytest.raises(RequestError, match="under way"):
                call()
        with pytest.raises(RequestError, match="no backward transform"):
            plan.backward.Wait()
        close(plan.backward(plan.forward.Wait()), u)


def case_destroy_while_one_rank_is_not_through(comm):
    """It raises on all, and goes on."""
    with PFFT(comm, SHAPE, **OPTIONS) as plan:
        plan.forward.Start(newDistArray(plan, False, val=1))
        if comm.rank:
            plan.forward.Wait()
        with pytest.raises(RequestError, match="under way"):
            plan.destroy()
        if not comm.rank:
            plan.forward.Wait()


@parameters(axes=[(0,), (2,), (0, 1, 2)], char="dD")
def case_one_memory_is_no_larger_than_its_lines(comm, axes, char):
    """Rows as long as they have to be, also where nothing is transposed."""
    with PFFT(comm, SHAPE, axes=axes, dtype=char, in_place=True, **OPTIONS) as plan:
        for array in (plan.forward.input_array, plan.forward.output_array):
            ends = [abs(step) * (n - 1) for step, n in
                    zip(array.strides, array.shape, strict=True)]
            assert sum(ends) + array.itemsize <= 2 * array.nbytes + 1024


@ranks(at_least=2)
@parameters(inside=["Test", "Wait"], asked=["Test", "Wait"])
def case_a_signal_handler_asks_for_the_transform_that_it_interrupts(comm, inside, asked):
    """It is told so, at once, and the transform goes on."""
    with PFFT(comm, SHAPE, **OPTIONS) as plan:
        u, heard = newDistArray(plan, False, val=1), []

        def handler(_):
            try:
                heard.append(getattr(plan.forward, asked)())
            except RequestError as error:
                heard.append(str(error))

        last = plan._execution.engine.legs(True)[-1]
        last.before = handler
        plan.forward.Start(u)
        while inside == "Test" and not plan.forward.Test():
            pass
        close(plan.backward(plan.forward.Wait()), u)
        last.before = None
        assert len(heard) == 1
        assert heard[0] is False if asked == "Test" else "that it interrupts" in heard[0]


@ranks(at_least=2)
@parameters(method=["rma-fence", "rma-fence-hier"])
def case_methods_of_one_order(comm, method):
    with PFFT(comm, SHAPE, **{**OPTIONS, "method": method}) as plan:
        u = newDistArray(plan, False, val=1)
        ordered = not plan.transposes[0].request.any_order
        try:
            plan.forward.Start(u)
        except UnsupportedError as error:
            assert ordered
            assert method in str(error)
        else:
            assert not ordered
            plan.forward.Wait()
        close(plan.backward(plan.forward(u)), u)


@parameters(leg=[0, 1])
def case_an_error_of_a_kernel(comm, leg):
    """It is raised where it occurred, and on every rank by the next transform."""
    with PFFT(comm, SHAPE, **OPTIONS) as plan:
        u = newDistArray(plan, False, val=1)
        legs = plan._execution.engine.legs(True)
        last, found = comm.rank == comm.size - 1, []
        with ExitStack() as stack:
            stack.enter_context(failing(legs[leg % len(legs)], last))
            for call in (lambda: plan.forward.Start(u), plan.forward.Wait, lambda: plan.forward(u)):
                try:
                    call()
                except ZeroDivisionError as error:
                    found.append(str(error))
                else:
                    found.append("")
                if call == plan.forward.Wait:
                    stack.close()
        assert found[0] == ""
        assert ("a kernel" in found[1]) == last
        assert "a kernel" in found[2]
        close(plan.backward(plan.forward(u)), u)
