/* logging_data.h: what a wrapped model can tell about itself: PyTorch's DDPLoggingData.
 *
 * Times are from sampled iterations only (the first ten, then every `rate`-th), with their running
 * means. Steps that are replayed from a graph are not counted. The environment of NCCL and Gloo is
 * left out.
 *
 * ddp_start_logging gives a wrapped model its logger; train_ddp's have one. With
 * TORCH_DISTRIBUTED_DEBUG=INFO each rank says on stderr how its model is set up, after the first
 * iteration.
 */
#ifndef DDP_FEATURES_LOGGING_DATA_H
#define DDP_FEATURES_LOGGING_DATA_H

#include <stdio.h>

#include "common/nn/module.h"

void ddp_start_logging(Module *wrapper); // before the first forward

typedef struct DdpLoggingData {
    int world_size, rank;
    uint64_t iteration; // reduced ones so far
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
    // Bytes of each bucket; parameters of each, by index: "4 5, 2 3, 0 1".
    char bucket_sizes[256], rebuilt_bucket_sizes[256], rebuilt_per_bucket_param_indices[256];
    char prev_iteration_grad_ready_order_indices[256];
} DdpLoggingData;

// Of a wrapper for which ddp_start_logging was called, as the other functions need it.
DdpLoggingData ddp_logging_data(Module *wrapper);
// Samples every rate-th iteration after the first ten; at least 1.
void ddp_set_logging_rate(Module *wrapper, uint64_t rate);
// One line of key=value.
void ddp_logging_print(const DdpLoggingData *data, FILE *stream);

#endif
