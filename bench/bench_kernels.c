/* bench_kernels.c: how long a GPU takes for each of its kernels in a GPT's training step in 16
 * bits, as CSV: bench/gpu_account.py --measure prints that beside its predictions. "ref" times the
 * reference's kernels: it shows that the program works.
 */
#include "bench/account/kernel_clock.h"
#include "bench/workload.h"
#include "common/base/options.h"
#include "common/nn/tape.h"

int main(int argc, char **argv) {
    ModelConfig model = {.name = "gpt2", .outputs = 50257, .seed = 1};
    const char *name = "cuda";
    size_t batch = 8, repeats = 5;
    Options options = {.program = "bench_kernels",
                       .summary = "Times a GPU's kernels in a GPT's training step, as CSV."};
    options_add_string(&options, "device", &name, "DEVICE", "whose kernels");
    options_add_count(&options, "layers", &model.gpt.layers, 0, 256, "blocks (0: 12)");
    options_add_count(&options, "heads", &model.gpt.heads, 0, 256, "of attention (0: 12)");
    options_add_count(&options, "embedding", &model.gpt.embedding, 0, 1 << 14, "(0: 768)");
    options_add_count(&options, "context", &model.gpt.context, 0, 1 << 14, "tokens (0: 1024)");
    options_add_count(&options, "vocabulary", &model.outputs, 1, 1 << 20, "tokens known");
    options_add_count(&options, "batch", &batch, 1, 1 << 14, "texts");
    options_add_count(&options, "repeats", &repeats, 1, 1000,
                      "calls of a kernel that are averaged");
    Error err = {0};
    must_do(options_parse(&options, argc, argv, &err), &err);
    Device *device = must_get(device_open(name, &err), &err);
    Workload step = workload_open(&model, device, batch, NULL);
    const bool has_bf16 = device->capability == 0 || device->capability >= 80;
    workload_use_precision(&step, has_bf16 ? PRECISION_BF16 : PRECISION_F16);
    workload_step(&step); // allocates, chooses the products' algorithms
    KernelClock *clock = kernel_clock_open(device, repeats);
    workload_step(&step);
    size_t count;
    const EntryTime *times = kernel_clock_times(clock, &count);
    char about[256];
    device->kernels->describe(about, sizeof about);
    printf("# device: %s\n# capability: %d\nentry,calls,seconds\n", about, device->capability);
    for (size_t i = 0; i < count; i++)
        printf("%s,%zu,%.9f\n", times[i].entry, times[i].calls, times[i].seconds);
    kernel_clock_close(clock);
    workload_close(&step);
    device_close(device);
    return STATUS_OK;
}
