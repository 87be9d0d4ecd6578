/* nccl_move.cpp: the progress of the emulated NCCL's operations.
 *
 * A collective is split into pieces. For each piece, every rank writes its data into its own slot,
 * waits until all ranks have, reads the data that it needs from their slots, and marks itself
 * finished; a slot is written again after all ranks have finished. A send is a sequence of chunks
 * through the channel between the two ranks. Nothing here blocks: an operation that must wait
 * returns and is called again.
 *
 * The sum of each part of a buffer begins at another rank, as in a ring: the bits are equal on all
 * ranks, but not those of a sum in rank order.
 */
#include <algorithm>
#include <cstring>

#include "common/base/half.h"
#include "nccl_internal.h"

namespace emulator {

size_t type_bytes(uint64_t type) {
    switch (type) {
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

// ---- arithmetic -----------------------------------------------------------------------------

template <typename T> static T combine(uint64_t op, T a, T b) {
    if (op == ncclSum) return static_cast<T>(a + b);
    return op == ncclMax ? (a < b ? b : a) : (b < a ? b : a);
}

template <typename T> static void combine_as(uint64_t op, void *sum, const void *more) {
    T a, b;
    memcpy(&a, sum, sizeof a);
    memcpy(&b, more, sizeof b);
    if constexpr (std::is_integral<T>::value) {
        using Wrapping = typename std::make_unsigned<T>::type; // sums of integers wrap around
        if (op == ncclSum) {
            a = static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
            memcpy(sum, &a, sizeof a);
            return;
        }
    }
    a = combine(op, a, b);
    memcpy(sum, &a, sizeof a);
}

static void combine_halves(uint64_t type, uint64_t op, void *sum, const void *more) {
    uint16_t a, b;
    memcpy(&a, sum, sizeof a);
    memcpy(&b, more, sizeof b);
    bool f16 = type == ncclFloat16;
    float result = combine(op, f16 ? half_from_f16(a) : half_from_bf16(a),
                           f16 ? half_from_f16(b) : half_from_bf16(b));
    a = f16 ? half_to_f16(result) : half_to_bf16(result);
    memcpy(sum, &a, sizeof a);
}

// *sum = *sum op *more, for one element.
static void combine_element(uint64_t type, uint64_t op, void *sum, const void *more) {
    switch (type) {
    case ncclUint8:
        return combine_as<uint8_t>(op, sum, more);
    case ncclInt32:
        return combine_as<int32_t>(op, sum, more);
    case ncclInt64:
        return combine_as<int64_t>(op, sum, more);
    case ncclFloat32:
        return combine_as<float>(op, sum, more);
    case ncclFloat64:
        return combine_as<double>(op, sum, more);
    default:
        return combine_halves(type, op, sum, more);
    }
}

// Reduces elements [first, first + count) of the whole buffer, which are at `from` in each rank's
// slot.
static void reduce(const State &state, const Agreement &a, size_t first, size_t count, size_t from,
                   unsigned char *to) {
    size_t size = type_bytes(a.type), ranks = static_cast<size_t>(state.ranks);
    for (size_t i = 0; i < count; i++) {
        size_t begin = (first + i) * ranks / a.count;
        for (size_t r = 0; r < ranks; r++) {
            const unsigned char *piece = state.shared->slots[(begin + r) % ranks].piece;
            const unsigned char *element = piece + from + i * size;
            if (r == 0)
                memcpy(to + i * size, element, size);
            else
                combine_element(a.type, a.op, to + i * size, element);
        }
    }
}

// ---- collectives ----------------------------------------------------------------------------

// The bytes of one piece. A piece of a reduce_scatter has a part for each rank, so its parts are
// smaller.
static size_t piece_bytes(const State &state, const Operation &o) {
    size_t parts = o.agreement.kind == static_cast<uint64_t>(Kind::REDUCE_SCATTER)
                       ? static_cast<size_t>(state.ranks)
                       : 1;
    size_t size = type_bytes(o.agreement.type), most = PIECE_BYTES / parts / size * size;
    return std::min(o.agreement.count * size - o.offset, most);
}

static void show(State &state, const Operation &o, size_t bytes) {
    Slot &own = state.shared->slots[state.rank];
    size_t whole = o.agreement.count * type_bytes(o.agreement.type);
    own.agreement = o.agreement;
    if (o.agreement.kind == static_cast<uint64_t>(Kind::REDUCE_SCATTER))
        for (size_t r = 0; r < static_cast<size_t>(state.ranks); r++)
            memcpy(own.piece + r * bytes, o.send + r * whole + o.offset, bytes);
    else if (o.send)
        memcpy(own.piece, o.send + o.offset, bytes);
    own.posted.store(state.round + 1, std::memory_order_release);
}

static void take(State &state, Operation &o, size_t bytes) {
    const Agreement &a = o.agreement;
    size_t size = type_bytes(a.type), whole = a.count * size,
           rank = static_cast<size_t>(state.rank);
    unsigned char *to = o.receive ? o.receive + o.offset : nullptr;
    switch (static_cast<Kind>(a.kind)) {
    case Kind::ALL_REDUCE:
    case Kind::REDUCE:
        if (to) reduce(state, a, o.offset / size, bytes / size, 0, to);
        break;
    case Kind::REDUCE_SCATTER:
        reduce(state, a, o.offset / size, bytes / size, rank * bytes, to);
        break;
    case Kind::BROADCAST:
        memcpy(to, state.shared->slots[a.root].piece, bytes);
        break;
    default: // ALL_GATHER
        for (size_t r = 0; r < static_cast<size_t>(state.ranks); r++)
            memcpy(to + r * whole, state.shared->slots[r].piece, bytes);
        break;
    }
}

static bool collective_advance(State &state, Operation &o) {
    Slot *slots = state.shared->slots;
    while (o.offset < o.agreement.count * type_bytes(o.agreement.type)) {
        size_t bytes = piece_bytes(state, o);
        if (!o.shown) {
            for (int r = 0; r < state.ranks; r++)
                if (slots[r].finished.load(std::memory_order_acquire) < state.round) return false;
            show(state, o, bytes);
            o.shown = true;
        }
        for (int r = 0; r < state.ranks; r++)
            if (slots[r].posted.load(std::memory_order_acquire) <= state.round ||
                !(slots[r].agreement == o.agreement))
                return false;
        take(state, o, bytes);
        slots[state.rank].finished.store(++state.round, std::memory_order_release);
        o.offset += bytes;
        o.shown = false;
    }
    return true;
}

// ---- send and receive -----------------------------------------------------------------------

// At most one chunk is in flight. A send is complete when its last chunk was taken.
static bool send_advance(State &state, Operation &o) {
    size_t peer = o.agreement.root, whole = o.agreement.count * type_bytes(o.agreement.type);
    Channel &channel = state.shared->channels[state.rank][peer];
    while (channel.taken.load(std::memory_order_acquire) == state.sent[peer]) {
        if (o.offset == whole) return true;
        size_t bytes = std::min(whole - o.offset, static_cast<size_t>(CHANNEL_BYTES));
        memcpy(channel.data, o.send + o.offset, bytes);
        o.offset += bytes;
        channel.posted.store(++state.sent[peer], std::memory_order_release);
    }
    return false;
}

static bool receive_advance(State &state, Operation &o) {
    size_t peer = o.agreement.root, whole = o.agreement.count * type_bytes(o.agreement.type);
    Channel &channel = state.shared->channels[peer][state.rank];
    while (o.offset < whole && channel.posted.load(std::memory_order_acquire) > state.taken[peer]) {
        size_t bytes = std::min(whole - o.offset, static_cast<size_t>(CHANNEL_BYTES));
        memcpy(o.receive + o.offset, channel.data, bytes);
        o.offset += bytes;
        channel.taken.store(++state.taken[peer], std::memory_order_release);
    }
    return o.offset == whole;
}

bool operation_advance(State &state, Operation &o) {
    switch (static_cast<Kind>(o.agreement.kind)) {
    case Kind::SEND:
        return send_advance(state, o);
    case Kind::RECV:
        return receive_advance(state, o);
    default:
        return collective_advance(state, o);
    }
}

} // namespace emulator
