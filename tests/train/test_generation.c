/* test_generation.c: tokens are drawn with their probabilities, from the logits of the preceding
 * window, and printed. (tests/programs/text.sh compares the output of trained models.)
 */
#include "tests/rigs/check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/rng.h"
#include "common/nn/tape.h"
#include "common/train/run.h"

static void parts_of_the_unit_interval(void **state) {
    (void)state;
    // Probabilities 1/6, 2/6, 0, 3/6. Adding a constant to all logits changes nothing.
    for (float shift = -80; shift < 100; shift += 80) {
        const float logits[] = {shift, shift + logf(2), -INFINITY, shift + logf(3),
                                shift + 300}; // not read
        assert_int_equal(generation_draw(logits, 4, 0), 0);
        assert_int_equal(generation_draw(logits, 4, 0.16), 0);
        assert_int_equal(generation_draw(logits, 4, 0.17), 1);
        assert_int_equal(generation_draw(logits, 4, 0.49), 1);
        assert_int_equal(generation_draw(logits, 4, 0.51), 3);
        assert_int_equal(generation_draw(logits, 4, 1 - 0x1p-24), 3);
        assert_int_equal(generation_draw(logits, 1, 0.9), 0);
    }
}

// ---- a model that computes a rule ---------------------------------------------------------------

enum { TOKENS = 7, CONTEXT = 4, SAMPLED = 20 };

typedef struct Rig {
    TrainConfig config;
    DataSource data;
    Device *device;
    Module *model;
    Sampler sampler;
    Strategy strategy;
    JobWatch watch;
    Job job;
    Step step;
    Run run;
    bool uniform; // all tokens have equal logits
    int forwards, phases;
    size_t peak_bytes;
} Rig;

static Rig rig;

// The token after a window is the sum of the window's tokens plus its length, modulo TOKENS. A
// position's logits belong to the window that ends there.
static int64_t rule(const int64_t *window, size_t length) {
    int64_t sum = (int64_t)length;
    for (size_t i = 0; i < length; i++) sum += window[i];
    return sum % TOKENS;
}

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    (void)self;
    assert_false(tape->recording || tape->training);
    assert_true(x->shape[0] == 1 && x->shape[1] <= CONTEXT);
    Tensor *logits = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){x->shape[1], TOKENS});
    for (size_t p = 0; p < x->shape[1]; p++)
        for (int64_t k = 0; k < TOKENS; k++)
            tensor_f32(logits)[p * TOKENS + (size_t)k] =
                rig.uniform || k == rule(x->data, p + 1) ? 0 : -500;
    rig.forwards++;
    return logits;
}

static void note_phase(const JobWatch *self, const char *phase, uint64_t step) {
    (void)self, (void)step;
    assert_string_equal(phase, "sample");
    rig.phases++;
}

static uint32_t LETTERS[TOKENS] = {'\n', 'a', 'b', 0xe9, 'd', 0x20ac, 'f'};
static const char *const WORDS[TOKENS] = {"\n", "a", "b", "\u00e9", "d", "\u20ac", "f"};

// Samples as rank `rank` of two; returns the printed text, to be freed.
static char *sample(size_t count, int rank, bool uniform, bool collective, bool characters) {
    Error err = {0};
    rig = (Rig){.config = {.sample = count, .seed = 11}, .uniform = uniform};
    rig.data.train = (Dataset){.shape = {CONTEXT, 1, 1}, .classes = TOKENS};
    if (characters) rig.data.characters = LETTERS, rig.data.character_count = TOKENS;
    rig.device = device_open("cpu:0", &err);
    CHECK_OK(rig.device, err);
    rig.model = module_create("Rule", forward);
    rig.sampler = (Sampler){.world = 2, .rank = rank};
    rig.strategy = (Strategy){.device = rig.device,
                              .sampler = &rig.sampler,
                              .model = rig.model,
                              .collective_forward = collective};
    rig.watch = (JobWatch){.enter = note_phase};
    rig.job = (Job){.strategy = &rig.strategy, .watch = &rig.watch};
    rig.step.tape = tape_create(rig.device, NULL);
    rig.run = (Run){.config = &rig.config,
                    .data = &rig.data,
                    .job = &rig.job,
                    .strategy = &rig.strategy,
                    .step = &rig.step};
    fflush(stdout);
    FILE *printed = tmpfile();
    int before = dup(STDOUT_FILENO);
    assert_true(printed && dup2(fileno(printed), STDOUT_FILENO) >= 0);
    int failed = generation_print(&rig.run, &err);
    fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    close(before);
    CHECK_OK(!failed, err);
    assert_true(rig.step.tape->recording && rig.step.tape->training);
    char *text = calloc(1, 5000);
    rewind(printed);
    assert_true(fread(text, 1, 4999, printed) < 4999);
    fclose(printed);
    rig.peak_bytes = rig.device->peak_bytes;
    tape_close(rig.step.tape);
    module_close(rig.model);
    device_close(rig.device);
    return text;
}

// The printed text of tokens 1 to SAMPLED, by the rule or by the draws alone. Token 0 is the
// prompt.
static void expect(char *text, bool uniform, bool characters) {
    int64_t tokens[SAMPLED + 1] = {0};
    char wanted[1000] = "sample tokens=20 seed=11\n";
    for (size_t i = 1; i <= SAMPLED; i++) {
        const size_t seen = i < CONTEXT ? i : CONTEXT;
        const double at = (double)rng_uniform(11, RNG_STREAM_SAMPLE, i, 0, 1);
        tokens[i] = uniform ? (int64_t)(at * TOKENS) : rule(tokens + i - seen, seen);
        char number[24];
        snprintf(number, sizeof number, "%s%d", i > 1 ? " " : "", (int)tokens[i]);
        strcat(wanted, characters ? WORDS[tokens[i]] : number);
    }
    strcat(wanted, "\n");
    assert_string_equal(text, wanted);
    free(text);
}

static void tokens_follow_from_those_before(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        const bool uniform = way % 2, characters = way / 2;
        expect(sample(SAMPLED, 0, uniform, characters, characters), uniform, characters);
        assert_int_equal(rig.forwards, SAMPLED);
        assert_int_equal(rig.phases, SAMPLED);
    }
}

// Other ranks than 0 print nothing, and run the model only if a forward needs all ranks.
static void who_samples(void **state) {
    (void)state;
    for (int collective = 0; collective < 2; collective++)
        for (int rank = 0; rank < 2; rank++) {
            char *text = sample(0, rank, false, collective, false);
            assert_string_equal(text, "");
            assert_int_equal(rig.forwards, 0);
            free(text);
            text = sample(3, rank, false, collective, false);
            assert_int_equal(*text != 0, rank == 0);
            assert_int_equal(rig.forwards, rank == 0 || collective ? 3 : 0);
            free(text);
        }
}

static void memory_is_that_of_one_token(void **state) {
    (void)state;
    free(sample(1, 0, true, false, false));
    const size_t peak = rig.peak_bytes;
    free(sample(2000, 0, true, false, false));
    assert_int_equal(rig.peak_bytes, peak);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_the_unit_interval),
        cmocka_unit_test(tokens_follow_from_those_before),
        cmocka_unit_test(who_samples),
        cmocka_unit_test(memory_is_that_of_one_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
