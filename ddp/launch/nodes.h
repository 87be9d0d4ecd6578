/* nodes.h: shared by nodes.c and elastic.c: keys in node 0's store, waiting with a deadline.
 *
 * All keys are behind "launcher/". Failed calls are not retried: nodes_poll reports node 0's end.
 */
#ifndef DDP_LAUNCH_NODES_H
#define DDP_LAUNCH_NODES_H

#include "ddp/launch/launch.h"

enum { NODES_TEXT_MAX = 1024 };

#define NODES_PARTING_S 5.0 // time-out for the other nodes to read how the job ended

// Adds to the key what_number. Returns the sum; -1 with err filled if the store does not answer.
int64_t nodes_count(Launch *launch, const char *what, int number, int64_t amount, Error *err);
// Sets the key to `mine` unless it has a value. Returns its value, or "" if the store does not
// answer. NULL: only reads.
const char *nodes_claim(Launch *launch, const char *key, const char *mine,
                        char stands[NODES_TEXT_MAX]);
// Returns how this attempt has ended, END_NONE if it has not; text says why. Calls the store at
// most once a second; on node 0 also checks the other nodes.
LaunchEnd nodes_poll(Launch *launch, char text[NODES_TEXT_MAX]);
// Whether the store has closed the connection, or has not answered for nodes_silence_s.
bool nodes_have_lost_node_0(const Launch *launch);
// Silence after which another node's launcher is lost: --heartbeat-timeout, from 3 to 10 s.
double nodes_silence_s(const Launch *launch);

typedef struct Patience {
    double most_s;
    uint64_t begin_ns, next_line_ns;
} Patience;

Patience patience_begin(double most_s);
bool patience_is_over(const Patience *patience);
// Writes a "waiting for" line every 10 s, or every quarter of the deadline.
void nodes_say_waiting(Launch *launch, Patience *patience, const char *for_whom);
// Forwards output for at most 0.1 s. True: a signal was received.
bool nodes_pause(Launch *launch);

// Connects to node 0's store and retries until the deadline: node 0 may start later. Returns 0; the
// number of a signal received meanwhile; or -1 with err filled.
int nodes_reach_store(Launch *launch, Patience *patience, Error *err);
// Fails if --nnodes or --nproc-per-node differ from those of a node that called before; err names
// both nodes' values.
int nodes_compare_options(Launch *launch, Error *err);

#endif
