#!/bin/bash
#SBATCH --job-name=onesided
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
# MPICH from PyPI (pip install ".[mpich]" in the folder of the sources), started by Slurm itself: one process manager, no
# second launcher. A system MPI that knows your Slurm's PMI is started in the same way; see
# `srun --mpi=list`.
export OMP_NUM_THREADS=1
srun --mpi=pmi2 onesided fft --shape 32 32 32 --iterations 5 --verify
srun --mpi=pmi2 onesided poisson --shape 32 32 32
