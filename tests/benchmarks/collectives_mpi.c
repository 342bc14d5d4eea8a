// The collectives benchmark's OpenMPI side: prints "operation bytes seconds" lines. Run with 2
// ranks.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int Compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* operations[] = {"all-reduce", "broadcast", "reduce"};
  for (int argument = 1; argument < argc; ++argument) {
    const long bytes = atol(argv[argument]);
    const int count = (int)(bytes / 4);
    float* in = calloc(count, 4);
    float* out = calloc(count, 4);
    for (int operation = 0; operation < 3; ++operation) {
      enum { kSamples = 5 };
      double seconds[kSamples];
      int repeats = 1;
      for (int sample = -1; sample < kSamples; ++sample) {  // The first sets `repeats`.
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (int i = 0; i < repeats; ++i) {
          if (operation == 0) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
          if (operation == 1) MPI_Bcast(in, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
          if (operation == 2) MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
        }
        double elapsed = (MPI_Wtime() - begin) / repeats, slowest;
        MPI_Allreduce(&elapsed, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (sample < 0) {
          const double wanted = 0.02 / (slowest > 1e-6 ? slowest : 1e-6);
          repeats = wanted < 1 ? 1 : wanted > 1000 ? 1000 : (int)wanted;
        } else {
          seconds[sample] = slowest;
        }
      }
      qsort(seconds, kSamples, sizeof(double), Compare);
      if (rank == 0) printf("%s %ld %.9f\n", operations[operation], bytes, seconds[kSamples / 2]);
    }
    free(in);
    free(out);
  }
  MPI_Finalize();
  return 0;
}
