/* heartbeat.h: publishes a rank's phase, step and collective to its launcher.
 *
 * ddprun shares a page (an inherited memfd; DDPRUN_HEARTBEAT holds its descriptor) with two cache
 * lines for each rank. The rank writes; the launcher reads when the rank dies or falls silent.
 */
#ifndef DDP_RENDEZVOUS_HEARTBEAT_H
#define DDP_RENDEZVOUS_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum { HEARTBEAT_NAME_MAX = 15 }; // longer names are cut

typedef struct Heartbeat Heartbeat;

// Sets *heartbeat to this rank's line, NULL without a launcher. 0, or -1 with err filled if
// DDPRUN_HEARTBEAT is set, but is not a page with a line for this rank.
int heartbeat_open(int local_rank, Heartbeat **heartbeat, Error *err);
// The callbacks of a PgObserver (ddp/group/process_group.h), whose context is a Heartbeat. Phase
// and step are set by one thread, the collective by one thread; the two may differ.
void heartbeat_enter(void *heartbeat, const char *phase, uint64_t step); // "init", "train", ...
void heartbeat_collective(void *heartbeat, uint64_t sequence, const char *kind);
// Marks this rank as a culprit: it fails for a reason of its own, not for the loss of a peer.
void heartbeat_culprit(void *heartbeat);
void heartbeat_close(void *heartbeat);

// The launcher's side: the page, with a line for each of its ranks.
typedef struct HeartbeatBoard {
    int fd; // for the ranks to inherit
    size_t bytes;
    void *page; // NULL: not open
} HeartbeatBoard;

typedef struct HeartbeatView {
    char phase[HEARTBEAT_NAME_MAX + 1]; // "" before the first beat
    uint64_t step;
    uint64_t sequence; // 0: no collective yet
    char kind[HEARTBEAT_NAME_MAX + 1];
    uint64_t beat_ns; // clock_ns of the last call of any kind; 0: none yet
    bool culprit;
} HeartbeatView;

// 0, or -1 with err filled.
int heartbeat_board_open(HeartbeatBoard *board, int ranks, Error *err);
void heartbeat_board_clear(HeartbeatBoard *board); // before the ranks are started anew
HeartbeatView heartbeat_board_read(const HeartbeatBoard *board, int local_rank);
void heartbeat_board_close(HeartbeatBoard *board);

#endif
