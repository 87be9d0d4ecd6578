/* nccl_internal.h: the memory shared by the ranks of the emulated NCCL, and the operations on it.
 *
 *     nccl.cpp        the interface: communicators, groups, faults
 *     nccl_move.cpp   the progress of an operation, piece by piece
 */
#ifndef TESTS_EMULATOR_NCCL_INTERNAL_H
#define TESTS_EMULATOR_NCCL_INTERNAL_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <nccl.h>

namespace emulator {

enum { RANKS_MAX = 16, PIECE_BYTES = 128 * 1024, CHANNEL_BYTES = 32 * 1024 };

enum class Kind { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV, KINDS };

// The arguments on which the ranks must agree. Ranks that do not agree wait for each other forever,
// as with NCCL.
struct Agreement {
    uint64_t kind, count, type, op, root;
    // Index, from 1, of the operation among those that the communicator recorded into graphs; 0:
    // not recorded. A replayed operation matches only the same recorded operation of the other
    // ranks: NCCL leaves other cases undefined.
    uint64_t recorded = 0;
    bool operator==(const Agreement &other) const {
        return kind == other.kind && count == other.count && type == other.type && op == other.op &&
               root == other.root && recorded == other.recorded;
    }
};

struct Slot { // written only by its rank
    std::atomic<uint32_t> present;
    char host[96], bus[24];                 // written before `present` is set
    std::atomic<uint64_t> posted, finished; // number of rounds
    // Per kind of operation: a bit for each rank with which this rank has begun one.
    std::atomic<uint32_t> connected[static_cast<size_t>(Kind::KINDS)];
    Agreement agreement;
    alignas(64) unsigned char piece[PIECE_BYTES];
};

struct Channel {                         // from one rank to another
    std::atomic<uint64_t> posted, taken; // number of chunks
    alignas(64) unsigned char data[CHANNEL_BYTES];
};

struct Shared { // in memory of the process that called ncclGetUniqueId
    uint64_t nonce;
    std::atomic<uint32_t> ranks;
    Slot slots[RANKS_MAX];
    Channel channels[RANKS_MAX][RANKS_MAX]; // [from][to]
};

struct Operation {
    Agreement agreement;
    const unsigned char *send; // NULL: this rank sends nothing
    unsigned char *receive;
    // Progress:
    size_t offset = 0; // finished bytes per rank
    bool shown = false;
};

struct State { // of a communicator; kept alive by operations on streams
    Shared *shared = nullptr;
    int rank = 0, ranks = 0, device = 0;
    uint64_t round = 0;                                   // finished rounds of the slots
    uint64_t recorded = 0;                                // operations recorded into graphs
    uint64_t sent[RANKS_MAX] = {}, taken[RANKS_MAX] = {}; // chunks, per peer
    const void *active = nullptr;                         // the stream work that is in progress
    std::atomic<int> graphs{0};                           // operations that existing graphs contain
    std::atomic<bool> aborted{false};
    std::atomic<ncclResult_t> error{ncclSuccess};
    ~State();
};

// Advances the operation without waiting. Returns whether it is complete.
bool operation_advance(State &state, Operation &operation);
size_t type_bytes(uint64_t type); // 0: unknown type

} // namespace emulator

#endif
