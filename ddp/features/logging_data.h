/* logging_data.h: a wrapped model's configuration and times (PyTorch's DDPLoggingData).
 *
 * Times are sampled: the first ten iterations, then one in `rate`; also their running means. Steps
 * replayed from a captured graph are not counted. PyTorch's fields for the environment variables of
 * NCCL and Gloo are omitted.
 *
 * ddp_start_logging adds the logger; train_ddp's models have one. With
 * TORCH_DISTRIBUTED_DEBUG=INFO each rank prints its configuration to stderr after the first
 * iteration.
 */
#ifndef DDP_FEATURES_LOGGING_DATA_H
#define DDP_FEATURES_LOGGING_DATA_H

#include <stdio.h>

#include "common/nn/module.h"

void ddp_start_logging(Module *wrapper); // before the first forward

typedef struct DdpLoggingData {
    int world_size, rank;
    uint64_t iteration; // number of reduced iterations
    bool is_multi_device_module, has_sync_bn, broadcast_buffers, find_unused_parameters;
    bool static_graph, gradient_as_bucket_view, has_rebuilt_buckets, join_uneven_inputs;
    size_t num_parameter_tensors, total_parameter_size_bytes, unused_parameter_size;
    double bucket_cap_bytes;
    // ns: the five events of PyTorch's Logger. exposed_comm_time is not PyTorch's.
    uint64_t forward_compute_time, backward_compute_time, backward_comm_time;
    uint64_t backward_compute_comm_overlap_time, exposed_comm_time;
    double avg_forward_compute_time, avg_backward_compute_time, avg_backward_comm_time;
    double avg_backward_compute_comm_overlap_time, avg_exposed_comm_time;
    char module_name[32], device_ids[64], backend_name[16], comm_hook[64], error[256];
    // Bytes of each bucket; indices of each bucket's parameters: "4 5, 2 3, 0 1".
    char bucket_sizes[256], rebuilt_bucket_sizes[256], rebuilt_per_bucket_param_indices[256];
    char prev_iteration_grad_ready_order_indices[256];
} DdpLoggingData;

// Precondition, here and below: ddp_start_logging was called for the wrapper.
DdpLoggingData ddp_logging_data(Module *wrapper);
// Samples one in `rate` iterations after the first ten. rate: at least 1.
void ddp_set_logging_rate(Module *wrapper, uint64_t rate);
// Prints one line of key=value.
void ddp_logging_print(const DdpLoggingData *data, FILE *stream);

#endif
