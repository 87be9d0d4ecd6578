/* dry_run.c: a run's memory by kind (--dry-run). */
#include "common/nn/half_copy.h"
#include "common/nn/ops_half.h"
#include "common/train/run.h"

static size_t bytes_of(Module *model, int which) {
    NamedTensors tensors = module_tensors(model, which);
    size_t bytes = 0;
    for (size_t i = 0; i < tensors.count; i++) bytes += tensor_bytes(tensors.items[i].tensor);
    named_tensors_free(&tensors);
    return bytes;
}

static size_t optimizer_bytes(const Optimizer *optimizer) {
    size_t bytes = 0;
    for (size_t i = 0; i < optimizer->parameters.count; i++)
        for (int s = 0; s < 2; s++)
            if (optimizer->state[s][i]) bytes += optimizer_part(optimizer, i).count * sizeof(float);
    for (size_t i = 0; optimizer->halves && i < optimizer->parameters.count; i++)
        bytes += optimizer->halves[i].bytes;
    return bytes;
}

void dry_run_print(Run *run) {
    const Job *job = run->job;
    const Strategy *strategy = run->strategy;
    const BatchInput *input = run->step->input;
    const size_t slot_bytes = input->capacity * (input->sample_bytes + input->target_bytes);
    if (!strategy_is_main(strategy)) return;
    const Dataset *set = &run->data->train;
    size_t begin, end, outputs = set->classes ? set->classes : set->target_size;
    const size_t element = dtype_bytes(tape_product_dtype(run->step->tape)); // of logits
    chunk_bounds(loader_capacity(run->loader), (size_t)job->all_count, 0, &begin, &end);
    struct {
        const char *kind;
        size_t bytes;
    } kinds[] = {{"weights", bytes_of(strategy->model, MODULE_PARAMETERS | MODULE_BUFFERS)},
                 {"gradients", bytes_of(strategy->model, MODULE_PARAMETERS)},
                 {"optimizer", optimizer_bytes(run->optimizer)},
                 {"batch", (size_t)input->slot_count * slot_bytes},
                 {"logits", (end - begin) * dataset_label_size(set) * outputs * element},
                 {"activations", strategy->device->peak_bytes}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    for (int i = 0; i < KINDS - 1; i++) kinds[KINDS - 1].bytes -= kinds[i].bytes;
    for (int i = 0; i < KINDS; i++)
        log_data(&run->record.log, "%s_bytes=%zu", kinds[i].kind, kinds[i].bytes);
    for (int i = 0; i < job->all_count; i++)
        log_data(&run->record.log, "peak_bytes=%zu (%.2f GiB on %s)", job->all[i]->peak_bytes,
                 (double)job->all[i]->peak_bytes / (1 << 30), job->all[i]->name);
}
