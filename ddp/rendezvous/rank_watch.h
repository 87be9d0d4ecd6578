/* rank_watch.h: the trainer's JobWatch over a process group: phases and steps go to the group's
 * observer (pg_enter), and a failure of this rank breaks the group (pg_abort).
 */
#ifndef DDP_RENDEZVOUS_RANK_WATCH_H
#define DDP_RENDEZVOUS_RANK_WATCH_H

#include "common/train/job_watch.h"
#include "ddp/group/process_group.h"

// The group remains the caller's and may be closed first.
const JobWatch *rank_watch_open(ProcessGroup *group);
void rank_watch_close(const JobWatch *watch);

#endif
