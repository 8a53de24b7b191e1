// SPDX-License-Identifier: BSD-3-Clause
// Messages, collectives and one-sided operations between MPI ranks; checks every byte.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { longest = 1 << 20 };

static void require(int good, const char* what) {
    if (!good) {
        fprintf(stderr, "wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static char byte_of(int rank, int round, int at) {
    return (char)(rank * 31 + round * 7 + at);
}

static int holds(const char* bytes, int length, int rank, int round) {
    for (int at = 0; at < length; ++at) {
        if (bytes[at] != byte_of(rank, round, at)) {
            return 0;
        }
    }
    return 1;
}

static void ring(int rank, int ranks, char* out, char* in) {
    const int next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    int round = 0;
    for (int length = 1; length <= longest; length *= 4, ++round) {
        for (int at = 0; at < length; ++at) {
            out[at] = byte_of(rank, round, at);
        }
        MPI_Sendrecv(out, length, MPI_CHAR, next, round, in, length, MPI_CHAR, previous, round,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        require(holds(in, length, previous, round), "a message of the ring");
    }
}

static void collectives(int rank, int ranks, char* out, char* in) {
    for (int round = 0; round < 50; ++round) {
        int sum = 0;
        const int mine = rank + round;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        require(sum == ranks * (ranks - 1) / 2 + ranks * round, "the sum of an allreduce");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    const int length = longest / ranks;
    for (int to = 0; to < ranks; ++to) {
        for (int at = 0; at < length; ++at) {
            out[to * length + at] = byte_of(rank, to, at);
        }
    }
    MPI_Alltoall(out, length, MPI_CHAR, in, length, MPI_CHAR, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; ++from) {
        require(holds(in + from * length, length, from, rank), "a part of an all-to-all");
    }
}

static void one_sided(int rank, int ranks, char* out, char* in) {
    MPI_Win window;
    memset(in, 0, longest);
    MPI_Win_create(in, longest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    const int length = longest / ranks;
    for (int at = 0; at < length; ++at) {
        out[at] = byte_of(rank, 3, at);
    }
    MPI_Win_fence(0, window);
    for (int to = 0; to < ranks; ++to) {
        MPI_Put(out, length, MPI_CHAR, to, (MPI_Aint)rank * length, length, MPI_CHAR, window);
    }
    MPI_Win_fence(0, window);
    for (int from = 0; from < ranks; ++from) {
        require(holds(in + from * length, length, from, 3), "what a put wrote");
    }
    MPI_Win_free(&window);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char* const out = malloc(longest);
    char* const in = malloc(longest);
    require(out != NULL && in != NULL, "no memory");
    ring(rank, ranks, out, in);
    collectives(rank, ranks, out, in);
    one_sided(rank, ranks, out, in);

    // Each rank is on another host.
    char name[64] = {0};
    int name_length = 0;
    char processor[MPI_MAX_PROCESSOR_NAME] = {0};
    MPI_Get_processor_name(processor, &name_length);
    snprintf(name, sizeof name, "%.60s", processor);
    char* const names = calloc((size_t)ranks, sizeof name);
    require(names != NULL, "no memory");
    MPI_Gather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        int different = 0;
        for (int i = 0; i < ranks; ++i) {
            int seen = 0;
            for (int j = 0; j < i; ++j) {
                seen |= strcmp(names + i * (int)sizeof name, names + j * (int)sizeof name) == 0;
            }
            different += !seen;
        }
        printf("%d ranks on %d hosts: all bytes are right\n", ranks, different);
    }
    free(names);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
