/* launch_processes.h: for programs that start their own ranks (Detectron2's launch, PyTorch's
 * spawn), where ddprun would start the program once per rank.
 *
 *     int train(ProcessGroup *group, const Rendezvous *me, void *arguments) { ... return 0; }
 *     int main(void) {
 *         Error err = {0};
 *         if (launch_processes(train, 4, 1, 0, "auto", &arguments, &err)) error_exit(&err);
 *     }
 *
 * Each rank is a copy of this process (fork), so call it before the program has started a thread:
 * a thread would not be there in the copy, but the locks it held would. (OpenBLAS's own threads
 * are fine: it puts them away for a fork.)
 */
#ifndef DDP_LAUNCH_LAUNCH_PROCESSES_H
#define DDP_LAUNCH_LAUNCH_PROCESSES_H

#include "ddp/rendezvous/init.h"

#define LAUNCH_TIMEOUT_S 1800.0 // of the group: PyTorch's default

// One rank's program: its group is open and is closed for it. Returns an exit status.
typedef int RankMain(ProcessGroup *group, const Rendezvous *me, void *arguments);

// Starts nproc ranks on this machine, of nproc * machines in all: on machine_rank m those from
// m * nproc. url: where they meet (ddp/rendezvous/init.h), or "auto" on one machine. In a world of
// one, rank 0 is this process. Waits for all of them. When one fails, the others get SIGTERM and
// five seconds later SIGKILL; -1, err names the first that failed, and err->status is its exit
// status (128 + number for a signal). When this process dies, the kernel kills its ranks.
int launch_processes(RankMain *rank_main, int nproc, int machines, int machine_rank,
                     const char *url, void *arguments, Error *err);

#endif
