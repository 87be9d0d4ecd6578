/* bench_clip.c: three ways to sum the squares of gradients for clipping, on the CPU. By hand:
 *
 *     train_single --model gpt-small --steps 5 --no-eval --dump-grads g.safetensors --dump-step 4
 *     bench_clip --gradients g.safetensors
 *
 *   order    a double sum of each tensor, in the order of its elements: depends on the partition
 *   blocks   the same of each 1024 elements of a tensor: equal for partitions at multiples of 1024
 *   exact    the kernel (kernels.h, SliceKernels.squares): equal for every partition
 *
 * The time of a way is its fastest round, and so is that of scaling, the other half of a pass.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/device/cpu/kernels.h"
#include "common/device/square_sum.h"
#include "common/tensor_files/safetensors.h"

enum { ORDER, BLOCKS, EXACT, SCALE, WAYS, BLOCK = 1024 };
static const char *const NAMES[WAYS] = {"order", "blocks", "exact", "scale"};

typedef struct Gradients {
    Slice *slices;
    size_t count, elements;
} Gradients;

static Gradients read_gradients(const char *path) {
    SafeTensors file;
    Error err = {0};
    must_do(safetensors_read(path, &file, &err), &err);
    Gradients all = {.slices = memory_zalloc(file.count * sizeof *all.slices)};
    for (size_t i = 0; i < file.count; i++) {
        const SafeEntry *entry = &file.entries[i];
        float *data = memory_zalloc(entry->bytes);
        memcpy(data, entry->data, entry->bytes);
        all.slices[all.count++] = (Slice){data, entry->bytes / sizeof(float)};
        all.elements += entry->bytes / sizeof(float);
    }
    safetensors_free(&file);
    return all;
}

VECTORISED static double sum_of_block(const float *x, size_t count) {
    return lanes_reduce(x, x, NULL, count);
}

static double sum_of_blocks(const Gradients *all, size_t block) {
    double total = 0;
    for (size_t s = 0; s < all->count; s++)
        for (size_t i = 0; i < all->slices[s].count; i += block) {
            const size_t left = all->slices[s].count - i;
            total += sum_of_block(all->slices[s].data + i, left < block ? left : block);
        }
    return sqrt(total);
}

static double run(const Gradients *all, int way) {
    int64_t sum[SQUARES_SIZE];
    double norm;
    switch (way) {
    case ORDER:
        return sum_of_blocks(all, SIZE_MAX / sizeof(float));
    case BLOCKS:
        return sum_of_blocks(all, BLOCK);
    case EXACT:
        cpu_slices.squares(all->slices, all->count, false, sum);
        return square_sum_root(sum);
    default: // twice as long as allowed: the gradients are halved; not counted: they are doubled
        memset(sum, 0, sizeof sum);
        cpu_slices.clip(all->slices, all->count, 0.5e-6, sum, &norm);
        return norm;
    }
}

int main(int argc, char **argv) {
    const char *path = NULL;
    size_t rounds = 300;
    Error err = {0};
    double ms[WAYS], norm[WAYS] = {0};
    Options options = {.program = "bench_clip",
                       .summary = "Times three ways to sum the squares of gradients."};
    options_add_string(&options, "gradients", &path, "FILE", "of train_single --dump-grads");
    options_add_count(&options, "rounds", &rounds, 1, 1e6, "of each way");
    must_do(options_parse(&options, argc, argv, &err), &err);
    if (!path)
        must_do(error_set(&err, STATUS_USAGE,
                          "--gradients FILE is needed (train_single --dump-grads FILE)"),
                &err);
    const Gradients all = read_gradients(path);
    for (int way = 0; way < WAYS; way++) ms[way] = INFINITY;
    for (size_t round = 0; round < rounds; round++)
        for (int way = 0; way < WAYS; way++) {
            const uint64_t begin = clock_ns();
            norm[way] = run(&all, way);
            ms[way] = fmin(ms[way], (double)(clock_ns() - begin) / 1e6);
            for (size_t s = 0; way == SCALE && s < all.count; s++)
                cpu_elementwise.scale(all.slices[s].data, 2, all.slices[s].count);
        }
    printf("%zu gradients\nway,ms,with_scale_ms,ratio,ratio_with_scale,norm\n", all.elements);
    for (int way = 0; way < SCALE; way++)
        printf("%s,%.4f,%.4f,%.3f,%.3f,%.9g\n", NAMES[way], ms[way], ms[way] + ms[SCALE],
               ms[way] / ms[ORDER], (ms[way] + ms[SCALE]) / (ms[ORDER] + ms[SCALE]), norm[way]);
    for (size_t s = 0; s < all.count; s++) free(all.slices[s].data);
    free(all.slices);
    return 0;
}
