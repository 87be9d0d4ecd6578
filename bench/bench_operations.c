/* bench_operations.c: the operations of a GPT's training step in mixed precision on a GPU, as CSV:
 * one row per kernel and shape, with its launches, floating-point operations by unit, and bytes of
 * device memory. No GPU is needed, and nothing is computed (account/recorder.h).
 *
 * bench/gpu_account.py reads them and predicts the step's time on a card.
 */
#include "bench/account/recorder.h"
#include "bench/workload.h"
#include "common/base/options.h"
#include "common/nn/tape.h"

static void print_operations(const Recorder *recorder) {
    size_t count;
    const Operation *list = recorder_operations(recorder, &count);
    puts("kernel,times,launches,m,n,k,tensor,fp32,fp64,bytes");
    for (size_t i = 0; i < count; i++) {
        const Operation *o = &list[i];
        printf("%s,%zu,%zu,%zu,%zu,%zu,%.0f,%.0f,%.0f,%.0f\n", o->kernel, o->times, o->launches,
               o->m, o->n, o->k, o->tensor, o->fp32, o->fp64, o->bytes);
    }
}

int main(int argc, char **argv) {
    ModelConfig model = {.name = "gpt2", .outputs = 50257, .seed = 1};
    size_t batch = 8;
    bool exact = false, float16 = false;
    Options options = {.program = "bench_operations",
                       .summary =
                           "Lists the operations of a GPT's training step on a GPU, as CSV."};
    options_add_count(&options, "layers", &model.gpt.layers, 0, 256, "blocks (0: 12)");
    options_add_count(&options, "heads", &model.gpt.heads, 0, 256, "of attention (0: 12)");
    options_add_count(&options, "embedding", &model.gpt.embedding, 0, 1 << 14, "(0: 768)");
    options_add_count(&options, "context", &model.gpt.context, 0, 1 << 14, "tokens (0: 1024)");
    options_add_count(&options, "vocabulary", &model.outputs, 1, 1 << 20, "tokens known");
    options_add_count(&options, "batch", &batch, 1, 1 << 14, "texts");
    options_add_flag(&options, "exact-attention", &exact, "on FP32 units, as below capability 8.0");
    options_add_flag(&options, "fp16", &float16, "not bfloat16, as below capability 8.0");
    Error err = {0};
    must_do(options_parse(&options, argc, argv, &err), &err);
    Device *device = must_get(device_open("dry-cpu:0", &err), &err);
    Recorder *recorder = recorder_open(device, !exact);
    Workload step = workload_open(&model, device, batch, NULL);
    workload_use_precision(&step, float16 ? PRECISION_F16 : PRECISION_BF16);
    workload_step(&step); // allocates, and initialises the optimizer's state
    recorder_clear(recorder);
    workload_step(&step);
    print_operations(recorder);
    workload_close(&step);
    recorder_close(recorder);
    device_close(device);
    return STATUS_OK;
}
