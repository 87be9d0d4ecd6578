/* rank_watch.h: what a rank tells those who watch over it while it trains: its launcher, by the
 * heartbeat, and the other ranks of its group, which it takes down with it when it fails.
 */
#ifndef DDP_RENDEZVOUS_RANK_WATCH_H
#define DDP_RENDEZVOUS_RANK_WATCH_H

#include "common/train/job_watch.h"
#include "ddp/group/process_group.h"

// Without a launcher, only the group hears of it. Close it after the group.
const JobWatch *rank_watch_open(ProcessGroup *group, int local_rank);
void rank_watch_close(const JobWatch *watch);

#endif
