/* generation.c: forward, draw, append, until --sample tokens are drawn. */
#include "common/train/generation.h"

#include <math.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/data/text.h"
#include "common/nn/ops.h"

size_t generation_draw(const float *logits, size_t count, double at) {
    double largest = -INFINITY, total = 0;
    for (size_t i = 0; i < count; i++)
        largest = (double)logits[i] > largest ? (double)logits[i] : largest;
    for (size_t i = 0; i < count; i++) total += exp((double)logits[i] - largest);
    double left = at * total;
    size_t token = 0;
    for (; token + 1 < count; token++) {
        left -= exp((double)logits[token] - largest);
        if (left < 0) break;
    }
    return token;
}

// Runs the model on tokens[length] and copies the last position's logits [classes] to the host.
static int expect_next(Run *run, const int64_t *tokens, size_t length, float *logits, Error *err) {
    Tape *tape = run->step->tape;
    size_t classes = run->data->train.classes;
    Tensor *input = tape_input(tape, DTYPE_I64, 2, (size_t[]){1, length}, tokens);
    Tensor *output = op_float32(tape, module_forward(run->strategy->model, tape, input));
    if (tape_error(tape, err) != 0) return -1;
    device_copy(NULL, logits, tape->device, tensor_f32(output) + (length - 1) * classes,
                classes * sizeof *logits);
    tape_reset(tape);
    return 0;
}

// Draws tokens[1 .. count]; tokens[0] is given.
static int draw_tokens(Run *run, int64_t *tokens, size_t count, Error *err) {
    const size_t classes = run->data->train.classes, context = run->data->train.shape[0];
    float *logits = memory_zalloc(classes * sizeof *logits);
    int failed = 0;
    for (size_t i = 1; i <= count && !failed; i++) {
        size_t seen = i < context ? i : context;
        run_enter(run, "sample");
        failed = expect_next(run, tokens + i - seen, seen, logits, err);
        double at = (double)rng_uniform(run->config->seed, RNG_STREAM_SAMPLE, i, 0, 1);
        if (!failed) tokens[i] = (int64_t)generation_draw(logits, classes, at);
    }
    free(logits);
    return failed;
}

static void print_tokens(Run *run, const int64_t *tokens, size_t count) {
    const bool characters = run->data->characters != NULL;
    enum { ROOM = 24 }; // characters of a number and a space
    char *text = memory_zalloc(count * ROOM + 1), *end = text;
    for (size_t i = 0; i < count; i++)
        end += characters
                   ? text_character(run->data, (size_t)tokens[i], end)
                   : (size_t)snprintf(end, ROOM, "%s%lld", i ? " " : "", (long long)tokens[i]);
    log_data(&run->record.log, "sample tokens=%zu seed=%llu", count,
             (unsigned long long)run->config->seed);
    log_data(&run->record.log, "%s", text);
    free(text);
}

int generation_print(Run *run, Error *err) {
    const size_t count = run->config->sample;
    Tape *tape = run->step->tape;
    if (count == 0 || !strategy_is_main(run->strategy)) return 0;
    int64_t *tokens = memory_zalloc((count + 1) * sizeof *tokens);
    tape->recording = tape->training = false;
    int failed = draw_tokens(run, tokens, count, err);
    tape->recording = tape->training = true;
    if (!failed) print_tokens(run, tokens + 1, count);
    free(tokens);
    return failed;
}
