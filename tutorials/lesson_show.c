/* lesson_show.c: prints steps, devices and layers. */
#include <stdarg.h>
#include <string.h>

#include "common/base/profile.h"
#include "tutorials/lesson.h"

void lesson_show(const Lesson *lesson, const char *format, ...) {
    va_list arguments;
    if (!lesson->show || lesson->quiet || lesson->step > 1) return;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
}

void lesson_print_shard(const Lesson *lesson, size_t shard, size_t rows, size_t divisor) {
    if (lesson->step == 1) printf("shard=%zu rows=%zu a_row_counts=1/%zu\n", shard, rows, divisor);
}

void lesson_print_shares(const Lesson *lesson, const Batch *batch, size_t devices) {
    const Sampler *sampler = lesson->sampler;
    const size_t last = (lesson->step - 2 + sampler->batch_count) % sampler->batch_count;
    if (lesson->step > 1 && sampler->start[last + 1] - sampler->start[last] == batch->count) return;
    printf("step=%zu rows=%zu shares=", lesson->step - 1, batch->count);
    for (size_t i = 0; i < devices; i++) {
        size_t begin, end;
        chunk_bounds(batch->count, devices, i, &begin, &end);
        printf("%s%zu", i ? "+" : "", end - begin);
    }
    printf("\n");
}

void lesson_print_each_step(const Lesson *lesson, const char *name, size_t count, size_t bytes) {
    if (!lesson->quiet)
        printf("each step: %s=%zu bytes=%zu\n", name, count / lesson->step, bytes / lesson->step);
}

void lesson_print_bytes(const Device *device) {
    printf("device=%s received_bytes=%zu peak_bytes=%zu\n", device->name,
           (size_t)device->copied_bytes, device->peak_bytes);
}

void lesson_print_phases(const Profile *profile) {
    uint64_t total = 0;
    for (Phase phase = 0; phase < PHASE_COUNT; phase++) total += profile->total[phase];
    for (Phase phase = 0; phase < PHASE_COUNT; phase++) {
        double percent = 100 * (double)profile->total[phase] / (double)total;
        if (profile->total[phase] == 0) continue;
        printf("%-10s %5.1f%% ", phase_name(phase), percent);
        for (int i = 0; i < (int)(percent / 2 + 0.5); i++) putchar('#');
        printf("\n");
    }
}

void lesson_print_counts(const Lesson *lesson, const double *counts, size_t classes,
                         double accuracy) {
    double rows = 0;
    if (lesson->quiet) return;
    for (size_t i = 0; i < classes * classes; i++) {
        rows += counts[i];
        printf((i + 1) % classes ? "%4.0f" : "%4.0f\n", counts[i]);
    }
    printf("counted=%.0f accuracy=%.6f\n", rows, accuracy);
}

void lesson_print_running_mean(Module *model) {
    NamedTensors buffers = module_tensors(model, MODULE_BUFFERS);
    for (size_t k = 0; k < buffers.count; k++)
        if (strcmp(buffers.items[k].name, "bn1.running_mean") == 0)
            printf("bn1.running_mean[0]=%.6f\n", (double)tensor_f32(buffers.items[k].tensor)[0]);
    named_tensors_free(&buffers);
}
