/* calls.c: each collective as NCCL calls. gather and scatter (which NCCL has from 2.28 on only) are
 * sends and receives in one NCCL group.
 *
 * Host buffers (metrics, bucket order, comparisons at start) are staged: one stage for the send
 * buffer and one for the receive buffer. A stage is used by one collective at a time, because a
 * collective with host buffers completes before `run` returns.
 */
#include <string.h>

#include "ddp/group/nccl/nccl_internal.h"

enum { STAGE_MIN = 64 * 1024 };

// A collective whose buffers are on the device.
typedef struct OnDevice {
    const void *send;
    void *receive;
} OnDevice;

// ncclBfloat16, which nccl.h declares for CUDA C++ alone before 2.24; the libraries have it since
// 2.10.
enum { NCCL_BFLOAT16 = 9 };

static const ncclDataType_t types[] = {[PG_F32] = ncclFloat32,
                                       [PG_F64] = ncclFloat64,
                                       [PG_I32] = ncclInt32,
                                       [PG_I64] = ncclInt64,
                                       [PG_U8] = ncclUint8,
                                       [PG_F16] = ncclFloat16,
                                       [PG_BF16] = (ncclDataType_t)NCCL_BFLOAT16};
static const ncclRedOp_t ops[] = {
    [PG_SUM] = ncclSum, [PG_AVG] = ncclSum, [PG_MAX] = ncclMax, [PG_MIN] = ncclMin};

bool nccl_is_host(const void *buffer) {
    struct cudaPointerAttributes attributes;
    if (!buffer) return false;
    CUDA(cudaPointerGetAttributes(&attributes, buffer));
    return attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged;
}

// ---- how much ----------------------------------------------------------------------------------

static bool is_in_place(const Collective *c) {
    return c->kind == PG_ALL_REDUCE || c->kind == PG_BROADCAST || c->kind == PG_REDUCE;
}

// Bytes that this rank receives in a ring, the minimum without support of the network.
static uint64_t ring_bytes(const PgNccl *nccl, const Collective *c) {
    uint64_t bytes = c->count * pg_type_bytes(c->type), world = (uint64_t)nccl->world;
    bool is_root = c->root == nccl->rank;
    switch (c->kind) {
    case PG_ALL_REDUCE:
        return 2 * bytes * (world - 1) / world;
    case PG_ALL_GATHER:
    case PG_REDUCE_SCATTER:
        return bytes * (world - 1);
    case PG_GATHER:
    case PG_REDUCE:
        return is_root ? bytes * (c->kind == PG_GATHER ? world - 1 : world > 1) : 0;
    case PG_BROADCAST:
    case PG_SCATTER:
        return is_root ? 0 : bytes;
    case PG_RECV:
        return bytes;
    default:
        return 0;
    }
}

// ---- the calls ---------------------------------------------------------------------------------

// Between ncclGroupStart and ncclGroupEnd: the root and each of the others. The root's own part is
// a copy.
static ncclResult_t queue_star(PgNccl *nccl, const Collective *c, const OnDevice *at) {
    const size_t bytes = c->count * pg_type_bytes(c->type);
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < nccl->world && result == ncclSuccess; r++) {
        const size_t offset = c->root == nccl->rank ? (size_t)r * bytes : 0;
        if (r == nccl->rank) continue;
        if (pg_sends(c, nccl->rank, r))
            result = ncclSend((const char *)at->send + offset, c->count, types[c->type], r,
                              nccl->communicator, nccl->stream);
        if (pg_sends(c, r, nccl->rank))
            result = ncclRecv((char *)at->receive + offset, c->count, types[c->type], r,
                              nccl->communicator, nccl->stream);
    }
    return result;
}

static int run_star(PgNccl *nccl, const Collective *c, const OnDevice *at, Error *err) {
    size_t bytes = c->count * pg_type_bytes(c->type), own = (size_t)nccl->rank * bytes;
    if (c->root == nccl->rank) {
        bool gathers = c->kind == PG_GATHER;
        char *to = (char *)at->receive + (gathers ? own : 0);
        const char *from = (const char *)at->send + (gathers ? 0 : own);
        if (to != from)
            CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nccl->stream));
    }
    if (nccl->world == 1) return 0;
    // Covers the whole NCCL group: of a blocking communicator only ncclGroupEnd waits.
    nccl_guard_enter(nccl);
    ncclResult_t result = ncclGroupStart();
    if (result == ncclSuccess) {
        ncclResult_t queued = queue_star(nccl, c, at), ended = ncclGroupEnd();
        result = queued == ncclSuccess || queued == ncclInProgress ? ended : queued;
    }
    return nccl_settle(nccl, result, "ncclGroupEnd()", err);
}

static int call_nccl(PgNccl *nccl, const Collective *c, const OnDevice *at, Error *err) {
    const ncclComm_t group = nccl->communicator;
    const cudaStream_t stream = nccl->stream;
    const ncclDataType_t type = types[c->type];
    const ncclRedOp_t op = ops[c->op];
    const size_t n = c->count;
    const void *from = at->send;
    void *to = at->receive;
    switch (c->kind) {
    case PG_ALL_REDUCE:
        return NCCL(nccl, ncclAllReduce(to, to, n, type, op, group, stream), err);
    case PG_BROADCAST:
        return NCCL(nccl, ncclBroadcast(to, to, n, type, c->root, group, stream), err);
    case PG_REDUCE:
        return NCCL(nccl, ncclReduce(to, to, n, type, op, c->root, group, stream), err);
    case PG_ALL_GATHER:
        return NCCL(nccl, ncclAllGather(from, to, n, type, group, stream), err);
    case PG_REDUCE_SCATTER:
        return NCCL(nccl, ncclReduceScatter(from, to, n, type, op, group, stream), err);
    case PG_SEND:
        return NCCL(nccl, ncclSend(from, n, type, c->root, group, stream), err);
    case PG_RECV:
        return NCCL(nccl, ncclRecv(to, n, type, c->root, group, stream), err);
    default:
        return run_star(nccl, c, at, err);
    }
}

static int run_on_device(PgNccl *nccl, const Collective *c, const OnDevice *at, Error *err) {
    if (call_nccl(nccl, c, at, err) != 0) return -1;
    const bool has_sum = pg_reduces(c->kind) && (c->kind != PG_REDUCE || c->root == nccl->rank);
    if (c->op == PG_AVG && has_sum) nccl_scale(nccl, c->type, at->receive, c->count);
    return 0;
}

// ---- buffers in host memory --------------------------------------------------------------------

static void close_stage(NcclStage *stage) {
    if (stage->device) CUDA(cudaFree(stage->device));
    if (stage->host) CUDA(cudaFreeHost(stage->host));
    *stage = (NcclStage){0};
}

void nccl_close_stages(PgNccl *nccl) {
    close_stage(&nccl->send);
    close_stage(&nccl->receive);
}

// Allocating synchronises with the device, so the work in flight is waited for first, with a
// deadline.
static int grow_stage(PgNccl *nccl, NcclStage *stage, size_t bytes, Error *err) {
    if (bytes <= stage->bytes) return 0;
    if (nccl_await_stream(nccl, err) != 0) return -1;
    close_stage(stage);
    size_t room = bytes < STAGE_MIN ? STAGE_MIN : bytes + bytes / 2;
    if (cudaMalloc(&stage->device, room) != cudaSuccess ||
        cudaHostAlloc(&stage->host, room, cudaHostAllocDefault) != cudaSuccess)
        return error_set(err, STATUS_FAILED,
                         "rank %d: no memory for a collective with %zu bytes in host memory",
                         nccl->rank, bytes);
    stage->bytes = room;
    return 0;
}

static int stage_in(PgNccl *nccl, NcclStage *stage, const void *buffer, size_t bytes, Error *err) {
    if (grow_stage(nccl, stage, bytes, err) != 0) return -1;
    if (bytes == 0) return 0;
    memcpy(stage->host, buffer, bytes);
    CUDA(cudaMemcpyAsync(stage->device, stage->host, bytes, cudaMemcpyHostToDevice, nccl->stream));
    return 0;
}

static int stage_out(PgNccl *nccl, NcclStage *stage, void *buffer, size_t bytes, Error *err) {
    if (bytes > 0)
        CUDA(cudaMemcpyAsync(stage->host, stage->device, bytes, cudaMemcpyDeviceToHost,
                             nccl->stream));
    if (nccl_await_stream(nccl, err) != 0) return -1;
    if (bytes > 0) memcpy(buffer, stage->host, bytes);
    return 0;
}

static int run_staged(PgNccl *nccl, const Collective *c, const NcclTicket *ticket, Error *err) {
    OnDevice at = {c->send, c->receive};
    const size_t size = pg_type_bytes(c->type);
    const size_t sent = pg_send_count(c, nccl->rank, nccl->world) * size;
    const size_t received = pg_receive_count(c, nccl->rank, nccl->world) * size;
    if (ticket->host_send && !is_in_place(c)) {
        if (stage_in(nccl, &nccl->send, c->send, sent, err) != 0) return -1;
        at.send = nccl->send.device;
    }
    if (ticket->host_receive) {
        size_t in = is_in_place(c) ? received : 0;
        if (grow_stage(nccl, &nccl->receive, received, err) != 0 ||
            stage_in(nccl, &nccl->receive, c->receive, in, err) != 0)
            return -1;
        at.receive = nccl->receive.device;
    }
    if (run_on_device(nccl, c, &at, err) != 0) return -1;
    // A reduce leaves the buffers of ranks other than root unchanged.
    bool keeps = !ticket->host_receive || (c->kind == PG_REDUCE && c->root != nccl->rank);
    return stage_out(nccl, &nccl->receive, c->receive, keeps ? 0 : received, err);
}

int nccl_barrier(PgNccl *nccl, Error *err) {
    int32_t one = 1;
    Collective sum = pg_all_reduce(&one, 1, PG_I32, PG_SUM);
    const NcclTicket ticket = {.host_send = true, .host_receive = true};
    return run_staged(nccl, &sum, &ticket, err);
}

int nccl_queue(PgNccl *nccl, const PgCall *call, const NcclTicket *ticket, uint64_t *moved,
               Error *err) {
    const Collective *c = &call->collective;
    *moved += ring_bytes(nccl, c);
    if (c->kind == PG_BARRIER) return nccl_barrier(nccl, err);
    if (c->count == 0) return 0;
    if (ticket->host_send || ticket->host_receive) return run_staged(nccl, c, ticket, err);
    return run_on_device(nccl, c, &(OnDevice){c->send, c->receive}, err);
}
