/* nccl.cpp: an NCCL between processes of one host, for tests without a GPU.
 *
 * Ranks share memory that the process of ncclGetUniqueId creates and that is freed with the last of
 * them. A communicator is in progress until all ranks have come, for ever if one does not.
 * Operations are pieces of work on a stream of the emulator, which check whether the other ranks
 * are ready and never block (nccl_move.cpp). As in NCCL: two ranks may not share a GPU unless
 * NCCL_HOSTID differs, a rank that dies is not noticed, and only ncclCommAbort ends an operation
 * whose other ranks do not come.
 *
 * As with NCCL, ncclCommDestroy and ncclCommAbort wait until no graph contains an operation of the
 * communicator any more; ncclCommAbort first ends the operations in progress without a result.
 *
 * Where a communicator may block, the first collective of each kind returns when all ranks have
 * called it, and the first message to or from a rank when that rank has called it, alone or in a
 * group; or they return when another thread aborts the communicator, which is then freed.
 *
 * Stricter than NCCL: every call on a communicator that is in progress fails, and every second
 * collective is in progress for a moment; memory must lie in one allocation of the device.
 *
 * Its version is nccl.h's, or DDPC_EMULATED_NCCL_VERSION=N (23003: 2.30.3). A function that this
 * version lacks ends the program. Since 2.30.3 ranks may share a GPU, where
 * NCCL_MULTI_RANK_GPU_ENABLE=1 says so.
 *
 * Faults, by environment variables of the process; K counts its collectives, from 1:
 *   DDPC_EMULATED_NCCL_ERROR_AT=K     the K-th fails asynchronously (ncclRemoteError)
 *   DDPC_EMULATED_NCCL_HANG_AT=K      the K-th never ends
 *   DDPC_EMULATED_NCCL_REPLAY_ERROR_AT=K  the K-th that a graph replays fails asynchronously
 *   DDPC_EMULATED_NCCL_REPLAY_HANG_AT=K   the K-th that a graph replays never ends
 *   DDPC_EMULATED_NCCL_ABORT_HANGS=1  ncclCommAbort does not return
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "nccl_internal.h"
#include "stream.h"

using emulator::Agreement;
using emulator::Kind;
using emulator::Operation;
using emulator::Shared;
using emulator::State;

struct ncclComm {
    std::shared_ptr<State> state;
    bool joined = false, blocking = true;
    int busy_looks = 0; // number of remaining queries that return "in progress"
    std::string last_error;
};

namespace {

struct Identity { // the contents of a ncclUniqueId
    uint64_t nonce;
    int pid, fd;
};

struct Group { // between ncclGroupStart and ncclGroupEnd
    int depth = 0;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    std::vector<Operation> operations;
    ncclResult_t result = ncclSuccess;
};

thread_local Group group;
std::atomic<long> collectives{0}, replays{0}; // of this process

long setting(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

int version() {
    long given = setting("DDPC_EMULATED_NCCL_VERSION");
    return given > 0 ? static_cast<int>(given) : NCCL_VERSION_CODE;
}

// For functions that exist in NCCL since version `first`: ends the program on a call with an older
// version.
void require(int first, const char *function) {
    const int now = version();
    if (now >= first) return;
    fprintf(stderr, "cuda_emulator: NCCL %d.%d.%d has no %s\n", now / 10000, now / 100 % 100,
            now % 100, function);
    abort();
}

ncclResult_t fail(ncclComm_t comm, ncclResult_t result, const char *why) {
    if (comm) comm->last_error = why;
    return result;
}

// ---- initialization --------------------------------------------------------------------------

Shared *map_shared(int fd) {
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<Shared *>(memory);
}

Shared *open_shared(const ncclUniqueId &id) {
    Identity identity;
    char path[64];
    memcpy(&identity, id.internal, sizeof identity);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", identity.pid, identity.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return nullptr;
    Shared *shared = map_shared(fd);
    close(fd);
    if (!shared || shared->nonce == identity.nonce) return shared;
    munmap(shared, sizeof *shared);
    return nullptr;
}

// Publishes this rank's host and GPU to the others.
ncclResult_t take_place(ncclComm_t comm) {
    State &state = *comm->state;
    emulator::Slot &own = state.shared->slots[state.rank];
    const char *host = getenv("NCCL_HOSTID");
    uint32_t nobody = 0, ranks = 0, want = static_cast<uint32_t>(state.ranks);
    if (!state.shared->ranks.compare_exchange_strong(ranks, want) && ranks != want)
        return fail(comm, ncclInvalidArgument, "ranks differ in how many they are");
    if (own.present.load() != nobody)
        return fail(comm, ncclInvalidUsage, "two ranks have a number");
    snprintf(own.host, sizeof own.host, "%s", host ? host : "");
    if (cudaDeviceGetPCIBusId(own.bus, sizeof own.bus, state.device) != cudaSuccess)
        return fail(comm, ncclUnhandledCudaError, "no GPU");
    own.present.store(1, std::memory_order_release);
    return ncclSuccess;
}

// Whether all ranks have come; fails if two of them share a GPU without permission.
ncclResult_t look_around(ncclComm_t comm) {
    State &state = *comm->state;
    const emulator::Slot *slots = state.shared->slots, &own = slots[state.rank];
    for (int r = 0; r < state.ranks; r++)
        if (slots[r].present.load(std::memory_order_acquire) == 0) return ncclInProgress;
    bool may_share = version() >= 23003 && setting("NCCL_MULTI_RANK_GPU_ENABLE") == 1;
    for (int r = 0; r < state.ranks && !may_share; r++)
        if (r != state.rank && !strcmp(slots[r].host, own.host) && !strcmp(slots[r].bus, own.bus))
            return fail(comm, ncclInvalidUsage, "Duplicate GPU detected");
    comm->joined = true;
    return ncclSuccess;
}

// ---- stream work -----------------------------------------------------------------------------

// The work on a stream for one call, or for a group of calls. Operations of a communicator run one
// after another, on any streams.
class StreamWork {
    std::shared_ptr<State> state;
    std::vector<Operation> operations;
    bool hangs, recorded, begun = false;

    void begin() {
        begun = true;
        if (!recorded) return;
        const long number = ++replays;
        const bool fails = number == setting("DDPC_EMULATED_NCCL_REPLAY_ERROR_AT");
        if (fails) state->error = ncclRemoteError;
        hangs = hangs || fails || number == setting("DDPC_EMULATED_NCCL_REPLAY_HANG_AT");
    }

    void restart() {
        for (Operation &o : operations) o.offset = 0, o.shown = false;
        begun = false;
    }

  public:
    StreamWork(std::shared_ptr<State> s, std::vector<Operation> list, bool never_ends)
        : state(std::move(s)), operations(std::move(list)), hangs(never_ends),
          recorded(operations[0].agreement.recorded > 0) {
        if (recorded) state->graphs++;
    }
    StreamWork(const StreamWork &) = delete;
    StreamWork &operator=(const StreamWork &) = delete;
    ~StreamWork() {
        if (recorded) state->graphs--;
    }

    bool operator()() {
        if (state->aborted) return true;
        if (state->active && state->active != this) return false;
        state->active = this;
        if (!begun) begin();
        if (hangs) return false;
        bool over = true;
        for (Operation &o : operations) over = operation_advance(*state, o) && over;
        if (!over) return false;
        state->active = nullptr;
        restart(); // so that a graph can replay it
        return true;
    }
};

// The ranks without which the operation cannot begin, one bit each.
uint32_t partners(const State &state, const Operation &operation) {
    const auto kind = static_cast<Kind>(operation.agreement.kind);
    if (kind == Kind::SEND || kind == Kind::RECV) return 1U << operation.agreement.root;
    return (1U << state.ranks) - 1;
}

// The kind of operation that a partner begins.
uint64_t answer(const Operation &operation) {
    const auto kind = static_cast<Kind>(operation.agreement.kind);
    if (kind == Kind::SEND) return static_cast<uint64_t>(Kind::RECV);
    return kind == Kind::RECV ? static_cast<uint64_t>(Kind::SEND) : operation.agreement.kind;
}

// Waits until every partner has begun its first operation of these kinds. Returns false if the
// communicator was aborted.
bool connect(State &state, const std::vector<Operation> &operations) {
    emulator::Slot *slots = state.shared->slots;
    for (const Operation &o : operations)
        slots[state.rank].connected[o.agreement.kind] |= partners(state, o);
    for (const Operation &o : operations)
        for (int r = 0; r < state.ranks; r++)
            while ((partners(state, o) >> r & 1) != 0 &&
                   (slots[r].connected[answer(o)] >> state.rank & 1) == 0) {
                if (state.aborted) return false;
                usleep(1000);
            }
    return true;
}

ncclResult_t launch(ncclComm_t comm, cudaStream_t stream, std::vector<Operation> operations) {
    const std::shared_ptr<State> kept = comm->state; // another thread may abort the communicator
    State &state = *kept;
    if (comm->blocking && !connect(state, operations)) return ncclInternalError;
    long number = ++collectives;
    bool hangs = number == setting("DDPC_EMULATED_NCCL_HANG_AT");
    if (number == setting("DDPC_EMULATED_NCCL_ERROR_AT")) {
        comm->last_error = "the emulator was told to fail here";
        state.error = ncclRemoteError;
        hangs = true;
    }
    if (emulator::stream_is_recording(stream)) {
        state.recorded++;
        for (Operation &o : operations) o.agreement.recorded = state.recorded;
    }
    auto work = std::make_shared<StreamWork>(comm->state, std::move(operations), hangs);
    if (emulator::stream_put(stream, "a collective of NCCL", [work] { return (*work)(); }) !=
        cudaSuccess)
        return fail(comm, ncclUnhandledCudaError, "the stream takes no work");
    if (comm->blocking || number % 2 == 0) return ncclSuccess;
    comm->busy_looks = 2;
    return ncclInProgress;
}

ncclResult_t check_comm(ncclComm_t comm) {
    if (!comm) return ncclInvalidArgument;
    if (!comm->joined || comm->busy_looks > 0)
        return fail(comm, ncclInvalidUsage, "the communicator is in progress");
    return comm->state->error;
}

bool on_device(const State &state, const void *memory, size_t bytes) {
    return bytes == 0 || emulator::memory_device(memory, bytes) == state.device;
}

// send_parts, receive_parts: the sizes of this rank's buffers in units of `count` elements.
ncclResult_t submit(ncclComm_t comm, cudaStream_t stream, const Agreement &agreement,
                    const void *send, size_t send_parts, void *receive, size_t receive_parts) {
    ncclResult_t checked = check_comm(comm);
    if (checked != ncclSuccess) return checked;
    const State &state = *comm->state;
    size_t bytes = agreement.count * emulator::type_bytes(agreement.type);
    if (emulator::type_bytes(agreement.type) == 0)
        return fail(comm, ncclInvalidArgument, "this type is not emulated");
    if (agreement.op == ncclProd || agreement.op > ncclMin)
        return fail(comm, ncclInvalidArgument, "this reduction is not emulated");
    if (agreement.root >= static_cast<uint64_t>(state.ranks))
        return fail(comm, ncclInvalidArgument, "there is no such rank");
    if (emulator::stream_device(stream) != state.device)
        return fail(comm, ncclInvalidArgument, "the stream is of another device");
    if (!on_device(state, send, bytes * send_parts) ||
        !on_device(state, receive, bytes * receive_parts))
        return fail(comm, ncclInvalidArgument, "a buffer is not in one allocation of the device");
    Operation operation;
    operation.agreement = agreement;
    operation.send = send_parts ? static_cast<const unsigned char *>(send) : nullptr;
    operation.receive = receive_parts ? static_cast<unsigned char *>(receive) : nullptr;
    if (group.depth == 0) return launch(comm, stream, {operation});
    group.comm = comm;
    group.stream = stream;
    group.operations.push_back(operation);
    return ncclSuccess;
}

void wait_for_graphs(const State &state) {
    while (state.graphs > 0) usleep(1000);
}

Agreement agree(Kind kind, size_t count, ncclDataType_t type, int op, int root) {
    return {static_cast<uint64_t>(kind), count,
            static_cast<uint64_t>(type), static_cast<uint64_t>(op),
            static_cast<uint64_t>(root), 0};
}

} // namespace

emulator::State::~State() {
    if (shared) munmap(shared, sizeof *shared);
}

// ---- communicators ---------------------------------------------------------------------------

ncclResult_t ncclGetVersion(int *version) {
    *version = ::version();
    return ncclSuccess;
}

// The descriptor stays open until the process ends, so that the other ranks can open the memory.
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    Identity identity = {0, getpid(), memfd_create("emulated NCCL", MFD_CLOEXEC)};
    if (identity.fd < 0 || ftruncate(identity.fd, sizeof(Shared)) != 0) return ncclSystemError;
    if (getrandom(&identity.nonce, sizeof identity.nonce, 0) != sizeof identity.nonce)
        return ncclSystemError;
    Shared *shared = map_shared(identity.fd);
    if (!shared) return ncclSystemError;
    shared->nonce = identity.nonce;
    munmap(shared, sizeof *shared);
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &identity, sizeof identity);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const names[] = {"no error",
                                        "unhandled cuda error",
                                        "system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return names[result];
}

const char *ncclGetLastError(ncclComm_t comm) {
    require(21300, "ncclGetLastError");
    return comm ? comm->last_error.c_str() : "";
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    require(21400, "ncclCommInitRankConfig");
    *comm = nullptr;
    if (ranks < 1 || ranks > emulator::RANKS_MAX || rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    ncclComm_t made = new ncclComm;
    made->state = std::make_shared<State>();
    made->state->rank = rank;
    made->state->ranks = ranks;
    made->blocking = !config || config->blocking != 0;
    *comm = made;
    if (cudaGetDevice(&made->state->device) != cudaSuccess) return ncclUnhandledCudaError;
    made->state->shared = open_shared(id);
    if (!made->state->shared) return fail(made, ncclSystemError, "no rank is at this address");
    ncclResult_t result = take_place(made);
    if (result == ncclSuccess) result = look_around(made);
    while (result == ncclInProgress && made->blocking) {
        usleep(1000);
        result = look_around(made);
    }
    return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    if (!comm) return ncclInvalidArgument;
    *error = comm->state->error;
    if (*error == ncclSuccess && !comm->joined) *error = look_around(comm);
    if (*error == ncclSuccess && comm->busy_looks > 0 && --comm->busy_looks > 0)
        *error = ncclInProgress;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    require(21400, "ncclCommFinalize");
    return check_comm(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    ncclResult_t checked = check_comm(comm);
    if (checked != ncclSuccess) return checked;
    wait_for_graphs(*comm->state);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (!comm) return ncclInvalidArgument;
    while (setting("DDPC_EMULATED_NCCL_ABORT_HANGS")) sleep(1);
    comm->state->aborted = true;
    wait_for_graphs(*comm->state);
    delete comm;
    return ncclSuccess;
}

// ---- memory ----------------------------------------------------------------------------------

ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
    require(21900, "ncclMemAlloc");
    return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *memory) {
    require(21900, "ncclMemFree");
    return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void *memory, size_t bytes, void **handle) {
    require(21900, "ncclCommRegister");
    ncclResult_t checked = check_comm(comm);
    if (checked != ncclSuccess) return checked;
    if (!on_device(*comm->state, memory, bytes)) return ncclInvalidArgument;
    *handle = memory;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle) {
    require(21900, "ncclCommDeregister");
    return handle ? check_comm(comm) : ncclInvalidArgument;
}

// ---- operations ------------------------------------------------------------------------------

ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0) return ncclInvalidUsage;
    if (--group.depth > 0 || group.operations.empty()) return ncclSuccess;
    std::vector<Operation> operations;
    operations.swap(group.operations);
    return launch(group.comm, group.stream, std::move(operations));
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return submit(comm, stream, agree(Kind::ALL_REDUCE, count, type, op, 0), send, 1, receive, 1);
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    bool is_root = comm && comm->state->rank == root;
    return submit(comm, stream, agree(Kind::BROADCAST, count, type, ncclSum, root), send, is_root,
                  receive, 1);
}

ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    bool is_root = comm && comm->state->rank == root;
    return submit(comm, stream, agree(Kind::REDUCE, count, type, op, root), send, 1, receive,
                  is_root);
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    size_t ranks = comm ? static_cast<size_t>(comm->state->ranks) : 0;
    return submit(comm, stream, agree(Kind::ALL_GATHER, send_count, type, ncclSum, 0), send, 1,
                  receive, ranks);
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    size_t ranks = comm ? static_cast<size_t>(comm->state->ranks) : 0;
    return submit(comm, stream, agree(Kind::REDUCE_SCATTER, receive_count, type, op, 0), send,
                  ranks, receive, 1);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return submit(comm, stream, agree(Kind::SEND, count, type, ncclSum, peer), send, 1, nullptr, 0);
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return submit(comm, stream, agree(Kind::RECV, count, type, ncclSum, peer), nullptr, 0, receive,
                  1);
}
