/* heartbeat.h: publishes a rank's phase, step and collective to its launcher.
 *
 * ddprun shares a page (an inherited memfd; DDPRUN_HEARTBEAT holds its descriptor) with two cache
 * lines for each rank. The rank writes; the launcher reads when the rank dies or falls silent.
 * Without a launcher the calls do nothing.
 */
#ifndef DDP_RENDEZVOUS_HEARTBEAT_H
#define DDP_RENDEZVOUS_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum { HEARTBEAT_NAME_MAX = 15 }; // longer names are cut

typedef struct Heartbeat Heartbeat;

// 0; -1 with err filled if DDPRUN_HEARTBEAT is set, but is not a page with a line for this rank.
int heartbeat_check(int local_rank, Error *err);
Heartbeat *heartbeat_open(int local_rank); // NULL without a launcher, which all calls accept
// Phase and step are set by one thread, the collective by one thread; the two may differ.
void heartbeat_phase(Heartbeat *heartbeat, const char *phase); // "init", "train", "evaluate", ...
void heartbeat_step(Heartbeat *heartbeat, uint64_t step);
void heartbeat_collective(Heartbeat *heartbeat, uint64_t sequence, const char *kind);
// Marks this rank as a culprit: it fails for a reason of its own, not for the loss of a peer.
void heartbeat_culprit(Heartbeat *heartbeat);
void heartbeat_close(Heartbeat *heartbeat);

// The launcher's side: the page, with a line for each of its ranks.
typedef struct HeartbeatBoard HeartbeatBoard;

typedef struct HeartbeatView {
    char phase[HEARTBEAT_NAME_MAX + 1]; // "" before the first beat
    uint64_t step;
    uint64_t sequence; // 0: no collective yet
    char kind[HEARTBEAT_NAME_MAX + 1];
    uint64_t beat_ns; // clock_ns of the last call of any kind; 0: none yet
    bool culprit;
} HeartbeatView;

HeartbeatBoard *heartbeat_board_open(int ranks, Error *err);
int heartbeat_board_fd(const HeartbeatBoard *board);
void heartbeat_board_clear(HeartbeatBoard *board); // before the ranks are started anew
HeartbeatView heartbeat_board_read(const HeartbeatBoard *board, int local_rank);
void heartbeat_board_close(HeartbeatBoard *board);

#endif
