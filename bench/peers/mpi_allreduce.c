/* mpi_allreduce.c: MPI_Allreduce measured as bench_allreduce measures ours: fill, meet, time, check
 * every element, and of each iteration the slowest rank's time. compare.sh builds it with mpicc.
 *
 *     mpirun -np 2 mpi_allreduce BYTES ITERATIONS      prints the times in us, one line each
 *
 * The exit status is 1 if an element of any sum was wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 3 };

// The number at index i of an iteration's buffer: small enough that sums of 64 ranks are exact.
static float base_value(size_t i, int iteration) {
    return (float)((i * 7 + (size_t)iteration) % 1024);
}

static double time_all_reduce(float *x, int count, int rank, int iteration) {
    for (int i = 0; i < count; i++) x[i] = base_value((size_t)i, iteration) * (float)(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - begin) * 1e6;
}

static int count_wrong(const float *x, int count, int world, int iteration) {
    int wrong = 0;
    float factor = 0.5f * (float)(world * (world + 1)); // 1 + 2 + ... + world
    for (int i = 0; i < count; i++) wrong += !(x[i] == base_value((size_t)i, iteration) * factor);
    return wrong;
}

int main(int argc, char **argv) {
    int rank, world, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    int count = argc == 3 ? atoi(argv[1]) / (int)sizeof(float) : 0;
    int iterations = argc == 3 ? atoi(argv[2]) : 0;
    float *x = count > 0 ? malloc((size_t)count * sizeof *x) : NULL;
    if (!x || iterations < 1) {
        fprintf(stderr, "usage: mpi_allreduce BYTES ITERATIONS\n");
        free(x);
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    for (int i = 0; i < WARM_UP + iterations; i++) {
        double us = time_all_reduce(x, count, rank, i), slowest;
        wrong += count_wrong(x, count, world, i);
        MPI_Reduce(&us, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0 && i >= WARM_UP) printf("%.3f\n", slowest);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && wrong) fprintf(stderr, "error: %d wrong elements\n", wrong);
    free(x);
    MPI_Finalize();
    return wrong != 0;
}
