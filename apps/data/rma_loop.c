/* The operations of one thread in one epoch, in C: what a benchmark in Python is compared with.
 *
 * A library for the process that has loaded MPI already; see apps/papers/rmamt_compiled.py. A call leaves
 * Python's lock once, for all operations.
 */
#include <mpi.h>
#include <stdint.h>

/* A handle of mpi4py: an integer where MPI's handles are integers, a pointer where they are. */
static MPI_Win window_of(uint64_t handle)
{
    return (MPI_Win)(uintptr_t)handle;
}

/* Put or get ``count`` messages of ``size`` bytes: number k between ``base + places[k]`` here and
 * byte ``places[k]`` of the window of ``ranks[k]``. Returns MPI's error code.
 */
int rma_loop(uint64_t handle, int is_get, int flush, char *base, const int64_t *places,
             const int32_t *ranks, int size, int count)
{
    MPI_Win win = window_of(handle);
    int code = MPI_SUCCESS;
    for (int k = 0; k < count && code == MPI_SUCCESS; k++) {
        char *here = base + places[k];
        MPI_Aint there = (MPI_Aint)places[k];
        int rank = (int)ranks[k];
        if (is_get)
            code = MPI_Get(here, size, MPI_BYTE, rank, there, size, MPI_BYTE, win);
        else
            code = MPI_Put(here, size, MPI_BYTE, rank, there, size, MPI_BYTE, win);
        if (flush && code == MPI_SUCCESS)
            code = MPI_Win_flush(rank, win);
    }
    return code;
}

/* The longest text that rma_library writes. */
int rma_library_length(void)
{
    return MPI_MAX_LIBRARY_VERSION_STRING;
}

/* Which MPI these calls go to. */
int rma_library(char *text)
{
    int length = 0;
    return MPI_Get_library_version(text, &length);
}
