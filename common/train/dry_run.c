/* dry_run.c: see dry_run.h. */
#include "common/train/dry_run.h"

#include "common/train/step_accumulated.h"

enum { STEPS = 2 }; // before the second one, all that is made only once is there

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
            if (optimizer->state[s][i])
                bytes += tensor_bytes(optimizer->parameters.items[i].tensor);
    return bytes;
}

// The bytes of the logits of one device's part of the batch.
static size_t logits_bytes(const Run *run) {
    const Dataset *set = &run->data->train;
    size_t begin, end, outputs = set->classes ? set->classes : set->target_size;
    chunk_bounds(loader_capacity(run->loader), (size_t)run->strategy->all_count, 0, &begin, &end);
    return (end - begin) * dataset_label_size(set) * outputs * sizeof(float);
}

static int take_steps(Run *run, Error *err) {
    loader_start(run->loader, 0, 0);
    for (int i = 0; i < STEPS; i++) {
        step_wait_batch(run->step);
        const Batch *batch = loader_next(run->loader);
        if (!batch) break;
        step_send_batch(run->step, batch);
        int failed = run->config->accumulate_steps == 1
                         ? step_run(run->step, run->step->tape, 0, err)
                         : step_run_accumulated(run->step, run->step->tape, 0, err);
        if (failed) return -1;
    }
    return 0;
}

int dry_run_print(Run *run, Error *err) {
    Strategy *strategy = run->strategy;
    if (take_steps(run, err) != 0) return -1;
    if (!strategy_is_main(strategy)) return 0;
    struct {
        const char *kind;
        size_t bytes;
    } kinds[] = {{"weights", bytes_of(strategy->model, MODULE_PARAMETERS | MODULE_BUFFERS)},
                 {"gradients", bytes_of(strategy->model, MODULE_PARAMETERS)},
                 {"optimizer", optimizer_bytes(run->optimizer)},
                 {"batch", batch_input_bytes(run->step->input)},
                 {"logits", logits_bytes(run)},
                 {"activations", strategy->device->peak_bytes}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    for (int i = 0; i < KINDS - 1; i++) kinds[KINDS - 1].bytes -= kinds[i].bytes;
    for (int i = 0; i < KINDS; i++)
        log_data(&run->record.log, "%s_bytes=%zu", kinds[i].kind, kinds[i].bytes);
    log_data(&run->record.log, "peak_bytes=%zu (%.2f GiB on %s)", strategy->device->peak_bytes,
             (double)strategy->device->peak_bytes / (1 << 30), strategy->device->name);
    for (int i = 1; i < strategy->all_count; i++)
        log_data(&run->record.log, "peak_bytes=%zu (%.2f GiB on %s)", strategy->all[i]->peak_bytes,
                 (double)strategy->all[i]->peak_bytes / (1 << 30), strategy->all[i]->name);
    return 0;
}
