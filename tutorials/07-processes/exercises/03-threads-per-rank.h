/* 03-threads-per-rank.h: the cores of a machine, divided among its ranks.
 *
 * A numerical library usually starts a thread for every core. If each of 8 ranks does so on 8
 * cores, 64 threads compete for them, and every rank becomes several times slower. Each rank must
 * take its share: all cores are used, none twice, and a rank has at least one thread.
 *
 *     8 cores, 4 ranks:  2 2 2 2
 *     8 cores, 3 ranks:  3 3 2         the first ranks take the remaining cores
 *     2 cores, 3 ranks:  1 1 1         more ranks than cores: one thread each, on shared cores
 */
#ifndef TUTORIALS_THREADS_PER_RANK_H
#define TUTORIALS_THREADS_PER_RANK_H

// Returns the number of threads of rank local_rank (from 0) of local_ranks ranks on this machine.
int threads_per_rank(int cores, int local_ranks, int local_rank);

#endif
