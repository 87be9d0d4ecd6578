/* elastic.h: nodes that come and go during a job (ddprun --nnodes MIN:MAX), as with torchrun and a
 * c10d rendezvous on node 0.
 *
 * The job runs in generations. A generation has from MIN to MAX nodes, and its ranks and world size
 * do not change. When it ends, every node ends its ranks, and node 0 forms the next generation from
 * the nodes that are ready. The ranks continue from their newest checkpoint (train_ddp --resume
 * auto); the launcher starts them with RANK, WORLD_SIZE and TORCHELASTIC_RESTART_COUNT, which is
 * the generation.
 *
 *   event                                      next generation
 *   a node's launcher is silent (nodes_silence_s)  without it; if it wakes, it asks to join again
 *   a node's launcher receives a signal,       without it
 *     or cannot start its ranks
 *   a node asks to join, and there is room     with it; a node beyond MAX waits for room
 *   a rank fails                               the same nodes; at most --max-restarts times
 *   node 0 is lost or receives a signal        none: all nodes end, because node 0 has the store
 *
 * Only failures of ranks count as restarts, on whichever node. A failure in a generation that lost
 * a node does not: the ranks that are left have lost a peer.
 *
 * Node 0 forms a generation when all nodes of the previous one are ready or gone, and either MAX
 * nodes are ready, or at least MIN and --last-call seconds have passed. With fewer than MIN it
 * waits for --start-timeout, then ends the job on all nodes. Node 0 is node 0 of every generation,
 * so rank 0, which writes the checkpoints, never moves. Other nodes are numbered by arrival.
 *
 * Files: elastic.c: a node's part; elastic_lead.c: node 0's. Keys, besides those of nodes.c:
 *
 *   members_0   number of nodes that have ever joined, without node 0
 *   member_M    "BEATS READY NAME", written by member M: BEATS grows once a second; READY is the
 *               first generation for which it is ready, MEMBER_LEFT after its end
 *   place_M     "GENERATION NODE NODES TEXT", written by node 0: the generation that includes M
 *   over        "ok TEXT" or "failed TEXT", written by node 0: the job has ended
 */
#ifndef DDP_LAUNCH_ELASTIC_H
#define DDP_LAUNCH_ELASTIC_H

#include "ddp/launch/nodes.h"

enum { MEMBER_LEFT = -1, MEMBER_NAME_MAX = 100 };

// A node's launcher, as node 0 sees it.
typedef struct ElasticMember {
    long long beats;
    uint64_t heard_ns; // when beats last changed
    int ready_for;     // its READY
    int generation;    // the last one that includes it; -1: none
    char name[MEMBER_NAME_MAX + 1];
} ElasticMember;

typedef struct Elastic {
    int member; // this node's number in the job, by arrival; 0: node 0; -1: none yet
    long long beats;
    int ready_for;
    char name[MEMBER_NAME_MAX + 1]; // "HOST pid PID"
    // On node 0:
    ElasticMember *members; // [count]
    int count;
    uint64_t refreshed_ns;
    int restarts;          // after failures of ranks
    uint64_t last_call_ns; // when at least MIN nodes were ready; 0: they are not
} Elastic;

// Joins the job and waits for a place in a generation. Returns 0; the number of a signal received
// meanwhile; or -1 with err filled.
int elastic_join(Launch *launch, Error *err);
// After a generation: waits for a place in the next. False: the job has ended, for this node or for
// all; launch->cause and err say how.
bool elastic_next(Launch *launch, Error *err);
// Tells node 0 that this launcher is alive. Returns 0, or -1: the store does not answer, or this
// node has no number.
int elastic_beat(Launch *launch);
// Ends this node's part. On node 0: ends the job, and keeps the store open until the other nodes
// have read that.
void elastic_part(Launch *launch);
void elastic_close(Launch *launch);

// On node 0, while ranks run: END_CHANGED if a member is lost or one asks to join; text says which.
LaunchEnd elastic_check(Launch *launch, char text[NODES_TEXT_MAX]);
// On node 0, between generations: forms the next one, or ends the job, when that is decided.
void elastic_lead(Launch *launch, Patience *patience);
// On node 0: whether a member other than node 0 has neither left nor been lost.
bool elastic_is_attended(Launch *launch);

#endif
