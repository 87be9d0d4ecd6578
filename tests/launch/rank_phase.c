/* rank_phase.c: a user's own program under ddprun: two ranks run barriers 1 and 2, then rank 1
 * exits with status 3. With "telling" both have reported step 50 of phase "train" (pg_enter).
 *
 *     rank_phase silent|telling
 *
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddp/rendezvous/init.h"

int main(int argc, char **argv) {
    Error err = {0};
    Rendezvous me;
    if (argc != 2) return 98;
    must_do(init_from_env(&me, false, &err), &err);
    ProcessGroup *group = must_get(init_process_group("shm", &me, NULL, 30, &err), &err);
    if (strcmp(argv[1], "telling") == 0) pg_enter(group, "train", 50);
    for (int i = 0; i < 2; i++) must_do(pg_run(group, pg_barrier(), &err), &err);
    if (me.rank == 1) _exit(3);
    (void)pg_run(group, pg_barrier(), &err); // fails when rank 1 is gone
    pg_close(group);
    return STATUS_FAILED;
}
