/* launch_processes.h: starts ranks by fork, for programs that start their own ranks (PyTorch's
 * spawn, Detectron2's launch). ddprun starts a program once per rank instead.
 *
 *     int train(ProcessGroup *group, const Rendezvous *me, void *arguments) { ... return 0; }
 *     int main(void) {
 *         Error err = {0};
 *         if (launch_processes(train, 4, 1, 0, "auto", &arguments, &err) != 0) error_exit(&err);
 *     }
 *
 * Precondition: the program has one thread. fork copies no other thread, but the locks that it
 * holds. (OpenBLAS's threads are an exception: it stops them for a fork.)
 */
#ifndef DDP_LAUNCH_LAUNCH_PROCESSES_H
#define DDP_LAUNCH_LAUNCH_PROCESSES_H

#include "ddp/rendezvous/init.h"

#define LAUNCH_TIMEOUT_S 1800.0 // time-out of the group's collectives: PyTorch's default

// One rank's program; returns its exit status. The group is the caller's, which closes it
// afterwards.
typedef int RankMain(ProcessGroup *group, const Rendezvous *me, void *arguments);

// Starts ranks machine_rank * nproc .. + nproc - 1 of nproc * machines and waits for all of them.
// In a world of one, rank 0 is this process. Returns 0 if all ranks returned 0. Otherwise -1: err
// names the first rank that failed, err->status is its exit status (128 + number for a signal), and
// the remaining ranks got SIGTERM, 5 s later SIGKILL. If this process dies, the kernel kills its
// ranks. url: of the rendezvous (ddp/rendezvous/init.h), or "auto" on one machine.
int launch_processes(RankMain *rank_main, int nproc, int machines, int machine_rank,
                     const char *url, void *arguments, Error *err);

#endif
