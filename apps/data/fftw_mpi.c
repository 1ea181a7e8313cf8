/* The real 3-D transform of FFTW-MPI, timed when asked to.

   fftw_mpi N0 N1 N2 LEAD, under mpiexec. Transforms are planned with FFTW_MEASURE and transposed
   output, in place and from one array to another; in each direction the faster one is kept. Then
   the first line comes out, in JSON: what was planned, and the error of a round trip. After that
   every line "forward" or "backward" on standard input is answered by the seconds that one
   transform took on the slowest rank, after others have run for LEAD seconds; the end of the
   input ends the program. Ranks that wait for a line sleep. */

#include <fftw3-mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IN_PLACE, OUT_OF_PLACE, WAYS };
enum { FORWARD, BACKWARD, DIRECTIONS, STOP };

static const char *const way_names[WAYS] = {"in place", "out of place"};
static const int trials = 3;

static fftw_plan plans[WAYS][DIRECTIONS];
static double *field;          /* real data of the transforms out of place */
static fftw_complex *spectrum; /* the spectrum, and all data of those in place */
static ptrdiff_t allocated;    /* complex elements of each */
static int rank;

static double *source_of(int way, int direction)
{
    return way == IN_PLACE || direction == BACKWARD ? (double *)spectrum : field;
}

/* Fresh numbers: repeated transforms of their own results would overflow. */
static void fill(double *data)
{
    for (ptrdiff_t i = 0; i < 2 * allocated; i++)
        data[i] = (double)(i % 1021) / 1021.0 - 0.5;
}

static double seconds(int way, int direction)
{
    fill(source_of(way, direction));
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    fftw_execute(plans[way][direction]);
    double mine = MPI_Wtime() - began, longest;
    MPI_Allreduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

static int faster_way(int direction)
{
    double least[WAYS] = {HUGE_VAL, HUGE_VAL};
    for (int trial = 0; trial < trials; trial++)
        for (int way = 0; way < WAYS; way++)
            least[way] = fmin(least[way], seconds(way, direction));
    return least[IN_PLACE] <= least[OUT_OF_PLACE] ? IN_PLACE : OUT_OF_PLACE;
}

/* Largest difference between numbers and what forward and backward make of them. Lines of real
   data have FFTW-MPI's padding in both ways. */
static double round_trip(int way, ptrdiff_t planes, const ptrdiff_t *n)
{
    double *data = source_of(way, FORWARD), mine = 0.0, largest;
    ptrdiff_t row = 2 * (n[2] / 2 + 1);
    double count = (double)n[0] * (double)n[1] * (double)n[2];
    fill(data);
    fftw_execute(plans[way][FORWARD]);
    fftw_execute(plans[way][BACKWARD]);
    for (ptrdiff_t line = 0; line < planes * n[1]; line++)
        for (ptrdiff_t k = 0; k < n[2]; k++) {
            ptrdiff_t i = line * row + k;
            double was = (double)(i % 1021) / 1021.0 - 0.5;
            mine = fmax(mine, fabs(data[i] / count - was));
        }
    MPI_Allreduce(&mine, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return largest;
}

/* The next thing to do, on all ranks. Only rank 0 reads; who waits for it sleeps. */
static int next_order(void)
{
    int order = STOP, arrived = 0;
    MPI_Request request;
    if (rank == 0) {
        char line[32];
        if (fgets(line, sizeof line, stdin))
            order = strncmp(line, "forward", 7) == 0    ? FORWARD
                    : strncmp(line, "backward", 8) == 0 ? BACKWARD
                                                        : STOP;
    }
    MPI_Ibcast(&order, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    for (;;) {
        MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
        if (arrived)
            return order;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    fftw_mpi_init();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ptrdiff_t n[3], planes, first, planes_out, first_out;
    for (int axis = 0; axis < 3; axis++)
        n[axis] = strtol(argv[axis + 1], NULL, 10);
    allocated = fftw_mpi_local_size_3d_transposed(n[0], n[1], n[2] / 2 + 1, MPI_COMM_WORLD,
                                                  &planes, &first, &planes_out, &first_out);
    field = fftw_alloc_real(2 * (size_t)allocated);
    spectrum = fftw_alloc_complex((size_t)allocated);
    for (int way = 0; way < WAYS; way++) {
        double *real = source_of(way, FORWARD);
        plans[way][FORWARD] =
            fftw_mpi_plan_dft_r2c_3d(n[0], n[1], n[2], real, spectrum, MPI_COMM_WORLD,
                                     FFTW_MEASURE | FFTW_MPI_TRANSPOSED_OUT);
        plans[way][BACKWARD] =
            fftw_mpi_plan_dft_c2r_3d(n[0], n[1], n[2], spectrum, real, MPI_COMM_WORLD,
                                     FFTW_MEASURE | FFTW_MPI_TRANSPOSED_IN);
    }
    int ways[DIRECTIONS] = {faster_way(FORWARD), faster_way(BACKWARD)};
    double error = fmax(round_trip(IN_PLACE, planes, n), round_trip(OUT_OF_PLACE, planes, n));
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0) {
        printf("{\"version\": \"%s\", \"ranks\": %d, \"forward\": \"%s\", \"backward\": \"%s\", "
               "\"round-trip error\": %.3e}\n",
               fftw_version, ranks, way_names[ways[FORWARD]], way_names[ways[BACKWARD]], error);
        fflush(stdout);
    }
    for (int order = next_order(); order != STOP; order = next_order()) {
        double lead = atof(argv[4]), taken = seconds(ways[order], order);
        for (; lead > 0; lead -= taken)
            taken = seconds(ways[order], order);
        if (rank == 0) {
            printf("%.9e\n", taken);
            fflush(stdout);
        }
    }
    for (int way = 0; way < WAYS; way++)
        for (int direction = 0; direction < DIRECTIONS; direction++)
            fftw_destroy_plan(plans[way][direction]);
    fftw_free(field);
    fftw_free(spectrum);
    fftw_mpi_cleanup();
    MPI_Finalize();
    return 0;
}
