/* nccl_internal.h: what the two files of the emulated NCCL share: the memory between the ranks, and
 * the operations that work through it.
 *
 *     nccl.cpp        the interface: communicators, groups, faults
 *     nccl_move.cpp   how an operation goes forward, piece by piece
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

// What ranks must agree on. Ranks that do not agree wait for each other forever, as with NCCL.
struct Agreement {
    uint64_t kind, count, type, op, root;
    // The how manieth that the communicator recorded into a graph, from 1; 0: it was not. A replay
    // is a collective of those that recorded it together: NCCL leaves open what else happens.
    uint64_t recorded = 0;
    bool operator==(const Agreement &other) const {
        return kind == other.kind && count == other.count && type == other.type && op == other.op &&
               root == other.root && recorded == other.recorded;
    }
};

struct Slot { // written by its rank only
    std::atomic<uint32_t> present;
    char host[96], bus[24];                 // complete before `present`
    std::atomic<uint64_t> posted, finished; // rounds
    // The ranks with which it has begun an operation of a kind, a bit for each.
    std::atomic<uint32_t> connected[static_cast<size_t>(Kind::KINDS)];
    Agreement agreement;
    alignas(64) unsigned char piece[PIECE_BYTES];
};

struct Channel {                         // from one rank to another
    std::atomic<uint64_t> posted, taken; // chunks
    alignas(64) unsigned char data[CHANNEL_BYTES];
};

struct Shared { // in memory that the process of ncclGetUniqueId has made
    uint64_t nonce;
    std::atomic<uint32_t> ranks;
    Slot slots[RANKS_MAX];
    Channel channels[RANKS_MAX][RANKS_MAX]; // [from][to]
};

struct Operation {
    Agreement agreement;
    const unsigned char *send; // NULL where this rank sends nothing
    unsigned char *receive;
    // How far it is:
    size_t offset = 0; // bytes per rank that are done
    bool shown = false;
};

struct State { // of a communicator; operations on streams keep it alive
    Shared *shared = nullptr;
    int rank = 0, ranks = 0, device = 0;
    uint64_t round = 0;                                   // pieces that went through the slots
    uint64_t recorded = 0;                                // operations that graphs were given
    uint64_t sent[RANKS_MAX] = {}, taken[RANKS_MAX] = {}; // chunks, per peer
    const void *active = nullptr;                         // which piece of stream work is under way
    std::atomic<int> graphs{0};                           // operations that graphs hold
    std::atomic<bool> aborted{false};
    std::atomic<ncclResult_t> error{ncclSuccess};
    ~State();
};

// Advances the operation; true when it is complete.
bool operation_advance(State &state, Operation &operation);
size_t type_bytes(uint64_t type); // 0: not known

} // namespace emulator

#endif
