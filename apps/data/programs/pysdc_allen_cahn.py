"""The Allen-Cahn equation with pySDC: its problem class on mpi4py-fft, spectral deferred steps."""

from pySDC.implementations.controller_classes.controller_nonMPI import controller_nonMPI
from pySDC.implementations.problem_classes.AllenCahn_MPIFFT import allencahn_imex
from pySDC.implementations.sweeper_classes.imex_1st_order import imex_1st_order

N = 128
STEPS = 4
DT = 1e-3

description = {
    "problem_class": allencahn_imex,
    "problem_params": {"nvars": (N, N), "eps": 0.04, "radius": 0.25, "spectral": False},
    "sweeper_class": imex_1st_order,
    "sweeper_params": {"quad_type": "RADAU-RIGHT", "num_nodes": 3, "initial_guess": "spread"},
    "level_params": {"dt": DT, "restol": 1e-8, "nsweeps": 1},
    "step_params": {"maxiter": 20},
}
controller = controller_nonMPI(1, {"logger_level": 40}, description)
start = controller.MS[0].levels[0].prob.u_exact(0.0)
result, _ = controller.run(u0=start, t0=0.0, Tend=STEPS * DT)
