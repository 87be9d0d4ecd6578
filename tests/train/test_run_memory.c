/* test_run_memory.c: a run frees all its memory. The libraries' three allocating calls and free are
 * wrapped and counted. Device memory is checked by device_close.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/temp_folder.h"

#include <pthread.h>

#include "common/train/setup.h"
#include "common/train/trainer.h"

// ---- live allocations ---------------------------------------------------------------------------

enum { MOST = 1 << 16 };

static void *held[MOST]; // hash table of live pointers; EMPTY replaces a freed one
static char freed;
#define EMPTY ((void *)&freed)
static size_t held_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// The table's slot of a pointer, or the free slot (NULL) for it.
static void **place_of(const void *memory) {
    size_t i = (uintptr_t)memory / 16 * 2654435761u % MOST;
    while (held[i] && held[i] != memory) i = (i + 1) % MOST;
    return &held[i];
}

static void hold(void *memory) {
    pthread_mutex_lock(&lock);
    *place_of(memory) = memory;
    held_count++;
    pthread_mutex_unlock(&lock);
}

static void let_go(const void *memory) {
    pthread_mutex_lock(&lock);
    void **place = place_of(memory);
    if (*place) { // not the C library's, which calls free too
        *place = EMPTY;
        held_count--;
    }
    pthread_mutex_unlock(&lock);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
int __wrap_vasprintf(char **text, const char *format, va_list args);
int __real_vasprintf(char **text, const char *format, va_list args);
void __wrap_free(void *memory);
void __real_free(void *memory);

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    int failed = __real_posix_memalign(memory, alignment, bytes);
    if (!failed) hold(*memory);
    return failed;
}

void *__wrap_realloc(void *memory, size_t bytes) {
    if (memory) let_go(memory);
    void *grown = __real_realloc(memory, bytes);
    hold(grown);
    return grown;
}

int __wrap_vasprintf(char **text, const char *format, va_list args) {
    int length = __real_vasprintf(text, format, args);
    if (length >= 0) hold(*text);
    return length;
}

void __wrap_free(void *memory) {
    if (memory) let_go(memory);
    __real_free(memory);
}

// ---- runs ---------------------------------------------------------------------------------------

static void run_once(const TrainConfig *config) {
    TrainConfig own = *config;
    Options options = {.program = "test_run_memory"};
    Error err = {0};
    train_options(&options, &own);
    DataSource *data = must_get(train_open_data(&own, &err), &err);
    Device *device = must_get(device_open("cpu:0", &err), &err);
    Module *model = must_get(train_create_model(&own, data, device, 0, &err), &err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, own.global_batch, true, false, 0, &err), &err);
    Job *job = job_single(strategy_single(model, device, sampler));
    CHECK_OK(trainer_run(&own, &options, data, job, &err) == 0, err);
    job->close(job);
    dataset_close(data);
}

static void check_run(const TrainConfig *config, const char *what) {
    run_once(config); // later runs must not add allocations
    const size_t before = held_count;
    run_once(config);
    if (held_count != before) fail_msg("%s: %zu before, %zu after", what, before, held_count);
}

// Minimal runs that together use most parts of the trainer.
static void runs_give_back_their_memory(void **state) {
    TrainConfig numbers = train_config_default(), pixels = numbers, text = numbers;
    char *out = temp_folder_path(state, "out"), *trace = temp_folder_path(state, "trace");
    char *gradients = temp_folder_path(state, "gradients");
    numbers.model = pixels.model = "toy";
    numbers.data = "synthetic:10:5@40";
    numbers.trace = trace;
    numbers.dump_grads = gradients;
    numbers.clip_grad_norm = 1;
    numbers.epochs = 1;
    pixels.model = "segnet";
    pixels.data = "shapes:8x8@10";
    pixels.global_batch = 5;
    pixels.accumulate_steps = 2;
    pixels.epochs = 1;
    pixels.out = out;
    pixels.dump_images = 1;
    pixels.keep_epochs = 1;
    text.model = "gpt";
    text.gpt = (GptSizes){.layers = 1, .heads = 1, .embedding = 8, .context = 8};
    text.steps = 2;
    text.sample = 3;
    text.no_eval = true;
    text.amp = PRECISION_F16;
    check_run(&numbers, "numbers");
    check_run(&pixels, "pixels");
    check_run(&text, "text");
    free(out);
    free(trace);
    free(gradients);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(runs_give_back_their_memory, temp_folder_make,
                                        temp_folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
