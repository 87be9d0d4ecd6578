/* logging_data.c: samples the times of iterations and describes a wrapped model's configuration. */
#include "ddp/features/logging_data.h"

#include <string.h>

#include "common/base/format.h"
#include "common/base/memory.h"
#include "ddp/features/features.h"
#include "ddp/features/logger.h"
#include "ddp/group/debug_level.h"
#include "ddp/reducer.h"

enum { FIRST_SAMPLES = 10, DEFAULT_RATE = 100 };

static const char NAME[] = "logging"; // of the DdpIteration

// ---- sampling -------------------------------------------------------------------------------

static void average(double *mean, uint64_t value, uint64_t samples) {
    *mean += ((double)value - *mean) / (double)samples;
}

static void sample(DdpLogger *logger, const Reducer *reducer) {
    DdpLoggingData *data = &logger->data;
    const ReducerTimes times = reducer_times(reducer);
    const uint64_t samples = ++logger->samples;
    data->forward_compute_time = times.forward_compute;
    data->backward_compute_time = times.backward_compute;
    data->backward_comm_time = times.backward_comm;
    data->backward_compute_comm_overlap_time = times.overlap;
    data->exposed_comm_time = times.exposed;
    average(&data->avg_forward_compute_time, times.forward_compute, samples);
    average(&data->avg_backward_compute_time, times.backward_compute, samples);
    average(&data->avg_backward_comm_time, times.backward_comm, samples);
    average(&data->avg_backward_compute_comm_overlap_time, times.overlap, samples);
    average(&data->avg_exposed_comm_time, times.exposed, samples);
    data->unused_parameter_size = 0;
    const NamedTensors *parameters = &reducer->slab.parameters;
    for (size_t i = 0; i < parameters->count; i++)
        if (!parameters->items[i].tensor->has_grad)
            data->unused_parameter_size += tensor_bytes(parameters->items[i].tensor);
}

static void print_if_asked(Module *wrapper) {
    DebugLevel level;
    if (debug_level_read(&level, NULL) != 0 || level < DEBUG_INFO) return;
    const DdpLoggingData data = ddp_logging_data(wrapper);
    ddp_logging_print(&data, stderr);
}

static void after_backward(void *state) {
    DdpLogger *logger = state;
    uint64_t iteration = ++logger->data.iteration;
    if (iteration <= FIRST_SAMPLES || iteration % logger->rate == 0)
        sample(logger, ddp_reducer(logger->wrapper));
    if (iteration == 1) print_if_asked(logger->wrapper);
}

// Writes the bytes of each bucket; its parameters' indices if `indices` is not NULL.
static void write_buckets(const Reducer *reducer, char *sizes, char *indices, size_t capacity) {
    const BucketPlan *plan = &reducer->slab.plan;
    for (size_t b = 0; b < plan->bucket_count; b++) {
        size_t first = plan->start[b], bytes = 0;
        for (size_t i = first; i < plan->start[b + 1]; i++) {
            bytes += tensor_bytes(reducer->slab.parameters.items[plan->order[i]].tensor);
            const char *separator = i > first ? " " : b > 0 ? ", " : "";
            if (indices) format_append(indices, capacity, "%s%zu", separator, plan->order[i]);
        }
        format_append(sizes, capacity, "%s%zu", b > 0 ? ", " : "", bytes);
    }
}

void ddp_start_logging(Module *wrapper) {
    Reducer *reducer = ddp_reducer(wrapper);
    DdpLogger *logger = memory_zalloc(sizeof *logger);
    *logger = (DdpLogger){.wrapper = wrapper, .rate = DEFAULT_RATE};
    write_buckets(reducer, logger->data.bucket_sizes, NULL, sizeof logger->data.bucket_sizes);
    reducer_add_iteration(reducer, (DdpIteration){.name = NAME,
                                                  .state = logger,
                                                  .after = after_backward,
                                                  .close = free,
                                                  .graph_safe = true}); // replayed: not counted
}

DdpLogger *ddp_logger(Module *wrapper) {
    DdpLogger *logger = reducer_find_iteration(ddp_reducer(wrapper), NAME);
    CHECK(logger, "ddp_start_logging was not called for this %s", wrapper->type);
    return logger;
}

void ddp_set_logging_rate(Module *wrapper, uint64_t rate) {
    CHECK(rate >= 1, "DDP logging sample rate should be equal or greater than 1");
    ddp_logger(wrapper)->rate = rate;
}

// ---- the configuration ------------------------------------------------------------------------

static bool is_first_on_its_device(const NamedTensors *parameters, size_t i) {
    size_t first = 0;
    while (parameters->items[first].tensor->device != parameters->items[i].tensor->device) first++;
    return first == i;
}

static void fill_parameters(DdpLoggingData *data, const NamedTensors *parameters) {
    data->num_parameter_tensors = parameters->count;
    for (size_t i = 0; i < parameters->count; i++) {
        const Tensor *tensor = parameters->items[i].tensor;
        data->total_parameter_size_bytes += tensor_bytes(tensor);
        if (!is_first_on_its_device(parameters, i)) continue;
        data->is_multi_device_module = i > 0;
        format_append(data->device_ids, sizeof data->device_ids, "%s%s", i > 0 ? " " : "",
                      tensor->device->name);
    }
}

static void fill_buckets(DdpLoggingData *data, const Reducer *reducer) {
    for (size_t i = 0; i < reducer->ready_count; i++)
        format_append(data->prev_iteration_grad_ready_order_indices,
                      sizeof data->prev_iteration_grad_ready_order_indices, "%s%lld", i ? ", " : "",
                      (long long)reducer->ready_order[i]);
    data->has_rebuilt_buckets = reducer->rebuilt;
    if (data->has_rebuilt_buckets)
        write_buckets(reducer, data->rebuilt_bucket_sizes, data->rebuilt_per_bucket_param_indices,
                      sizeof data->rebuilt_bucket_sizes);
}

static bool is_policy(const Reducer *reducer, const char *name) {
    const char *policy = reducer->policy.name;
    return policy && strcmp(policy, name) == 0;
}

DdpLoggingData ddp_logging_data(Module *wrapper) {
    const DdpConfig *config = ddp_config(wrapper);
    Reducer *reducer = ddp_reducer(wrapper);
    const NamedTensors *parameters = &reducer->slab.parameters;
    const char *hook = reducer->hook.name;
    DdpLoggingData data = ddp_logger(wrapper)->data;
    data.world_size = pg_size(ddp_group(wrapper));
    data.rank = pg_rank(ddp_group(wrapper));
    data.has_sync_bn = module_has_type(ddp_module(wrapper), "SyncBatchNorm");
    data.broadcast_buffers = config->broadcast_buffers;
    data.find_unused_parameters = is_policy(reducer, "find_unused_parameters");
    data.static_graph = is_policy(reducer, "static_graph");
    data.gradient_as_bucket_view =
        parameters->items[0].tensor->grad == reducer->slab.slices[0].data;
    data.join_uneven_inputs = reducer_find_iteration(reducer, "join") != NULL;
    data.bucket_cap_bytes = (config->bucket_cap_mb < 0 ? 25 : config->bucket_cap_mb) * 1024 * 1024;
    format_append(data.module_name, sizeof data.module_name, "%s", ddp_module(wrapper)->type);
    format_append(data.backend_name, sizeof data.backend_name, "%s",
                  pg_backend(ddp_group(wrapper)));
    format_append(data.comm_hook, sizeof data.comm_hook, "%s", hook ? hook : "");
    format_append(data.error, sizeof data.error, "%s", reducer->error.message);
    fill_parameters(&data, parameters);
    fill_buckets(&data, reducer);
    return data;
}

void ddp_logging_print(const DdpLoggingData *d, FILE *stream) {
    fprintf(stream,
            "ddp module=%s rank=%d world_size=%d backend=%s devices=\"%s\" parameters=%zu "
            "parameter_bytes=%zu bucket_bytes=\"%s\" rebuilt_bucket_bytes=\"%s\" comm_hook=%s "
            "find_unused_parameters=%d static_graph=%d gradient_as_bucket_view=%d join=%d "
            "iteration=%llu "
            "avg_forward_ns=%.0f avg_backward_ns=%.0f avg_comm_ns=%.0f avg_overlap_ns=%.0f "
            "avg_exposed_ns=%.0f\n",
            d->module_name, d->rank, d->world_size, d->backend_name, d->device_ids,
            d->num_parameter_tensors, d->total_parameter_size_bytes, d->bucket_sizes,
            d->rebuilt_bucket_sizes, d->comm_hook[0] ? d->comm_hook : "none",
            d->find_unused_parameters, d->static_graph, d->gradient_as_bucket_view,
            d->join_uneven_inputs, (unsigned long long)d->iteration, d->avg_forward_compute_time,
            d->avg_backward_compute_time, d->avg_backward_comm_time,
            d->avg_backward_compute_comm_overlap_time, d->avg_exposed_comm_time);
}

const DdpFeature logging_data_feature = {.graph_safe = true, .add_to = ddp_start_logging};
