/* test_cuda_device.c: a GPU as a Device: memory accounting, copies, the order of asynchronous work,
 * events, graphs, two Devices on one card, threads. Only device.h is used. Where the order of two
 * operations is unspecified, the emulated card (cmake --preset emulator) executes them in the
 * reverse order, so that a missing dependency fails.
 *
 * Skipped without a GPU or without CUDA. Faults that end the program run in a child: this program
 * with the fault's name as argument.
 */
#include "tests/rigs/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/device/device.h"

enum { COUNT = 10007, ROUNDS = 20, MIB = 1 << 20 };
static const double PATIENCE = 300;

static Device *open_device(const char *name) {
    Error err = {0};
    Device *device = device_open(name, &err);
    if (!device) fail_msg("%s", err.message);
    return device;
}

static float *floats(Device *device, size_t count) {
    return device_alloc(device, count * sizeof(float));
}

static void free_floats(Device *device, float *x, size_t count) {
    device_free(device, x, count * sizeof *x);
}

// Returns a tensor filled with one value.
static float *filled(Device *device, float value, size_t count) {
    float *x = floats(device, count);
    device_kernels(device)->elementwise->fill(x, value, count);
    return x;
}

static void expect_all(Device *device, const float *x, float value, size_t count,
                       const char *what) {
    float *host = memory_zalloc(count * sizeof *host);
    device_copy(NULL, host, device, x, count * sizeof *host);
    for (size_t i = 0; i < count; i++)
        if (!(host[i] == value))
            fail_msg("%s: element %zu is %g, not %g", what, i, (double)host[i], (double)value);
    free(host);
}

// Enqueues work that keeps the device busy.
static void linger(Device *device) {
    enum { MANY = 100, SOME = 1 << 15 };
    float *x = floats(device, SOME);
    for (int i = 0; i < MANY; i++) device_kernels(device)->elementwise->fill(x, (float)i, SOME);
    free_floats(device, x, SOME);
}

static unsigned char *random_bytes(size_t count, uint64_t seed) {
    unsigned char *bytes = memory_zalloc(count + sizeof(uint64_t));
    for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
        uint64_t eight = rng_u64(seed, RNG_STREAM_TEST, i);
        memcpy(bytes + i, &eight, sizeof eight);
    }
    return bytes;
}

// ---- memory -------------------------------------------------------------------------------------

static void test_memory(void **state) {
    (void)state;
    Device *device = open_device("cuda:0");
    assert_false(device_is_addressable(device));
    assert_true(device_available("cuda") >= 1);
    void *a = device_alloc(device, 1000), *b = device_alloc(device, 3 * MIB);
    void *nothing = device_alloc(device, 0);
    assert_non_null(nothing);
    assert_int_equal((uintptr_t)a % MEMORY_ALIGNMENT, 0);
    assert_int_equal((uintptr_t)b % MEMORY_ALIGNMENT, 0);
    assert_int_equal(device->bytes, 3 * MIB + 1000);
    device_free(device, b, 3 * MIB);
    assert_int_equal(device->bytes, 1000);
    assert_int_equal(device->peak_bytes, 3 * MIB + 1000);
    device_reset_peak(device);
    assert_int_equal(device->peak_bytes, 1000);
    assert_ptr_equal(device_alloc(device, 3 * MIB), b); // cached and reused
    device_free(device, b, 3 * MIB);
    device_free(device, a, 1000);
    device_free(device, nothing, 0);
    device_free(device, NULL, 77);
    assert_int_equal(device->bytes, 0);
    device_close(device);
}

// ---- copies -------------------------------------------------------------------------------------

static const size_t SIZES[] = {1,       3,           64,          4095,        65537,
                               4 * MIB, 4 * MIB - 1, 4 * MIB + 1, 9 * MIB + 7, 0};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES, GUARD = 100 };

// Copies to a device at an odd address, to another device, and back; each source is overwritten at
// once.
static void copy_around(Device *a, Device *b, size_t bytes) {
    size_t room = bytes + GUARD;
    unsigned char *want = random_bytes(bytes, bytes), *host = random_bytes(room, 1);
    unsigned char *guard = random_bytes(room, 1), *there = device_alloc(a, room);
    unsigned char *elsewhere = device_alloc(b, room);
    device_copy(b, elsewhere, NULL, guard, room);
    memcpy(host, want, bytes);
    linger(a); // the copy is delayed, and must read the source before it is overwritten
    device_copy(a, there + 1, NULL, host, bytes);
    memset(host, 0xee, room);
    uint64_t before = b->copied_bytes;
    device_copy(b, elsewhere + 3, a, there + 1, bytes);
    assert_int_equal(b->copied_bytes - before, a == b ? 0 : bytes);
    device_copy(a, there + 1, NULL, host, bytes); // ordered after the copy that reads `there`
    device_copy(NULL, host, b, elsewhere, room);
    assert_memory_equal(host, guard, 3);
    assert_memory_equal(host + 3, want, bytes);
    assert_memory_equal(host + 3 + bytes, guard + 3 + bytes, room - bytes - 3);
    device_free(a, there, room);
    device_free(b, elsewhere, room);
    free(want);
    free(host);
    free(guard);
}

static void test_copies(void **state) {
    (void)state;
    Device *a = open_device("cuda:0"), *b = open_device("cuda:0"), *cpu = open_device("cpu:0");
    Device *c = device_available("cuda") > 1 ? open_device("cuda:1") : NULL;
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        copy_around(a, a, SIZES[i]);
        copy_around(a, b, SIZES[i]);
        copy_around(a, cpu, SIZES[i]);
        if (c) copy_around(a, c, SIZES[i]);
        if (c) copy_around(c, b, SIZES[i]);
    }
    device_close(c);
    device_close(cpu);
    device_close(b);
    device_close(a);
}

// Two devices copy a tensor back and forth, and each overwrites its own at once: a copy must be
// ordered after earlier work and before later work of both devices.
static void play(Device *a, Device *b) {
    float *x = filled(a, 1, COUNT), *y = filled(b, 0, COUNT), *sum = filled(b, 0, COUNT);
    float want_x = 1, want_sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 5 == 0) linger(i % 2 ? a : b);
        device_copy(b, y, a, x, COUNT * sizeof *x);
        device_kernels(a)->elementwise->fill(x, -1000, COUNT);
        device_kernels(b)->elementwise->accumulate(sum, y, COUNT);
        device_kernels(b)->elementwise->scale(y, i % 2 ? 0.5f : 3, COUNT);
        device_copy(a, x, b, y, COUNT * sizeof *x);
        device_kernels(b)->elementwise->fill(y, -2000, COUNT);
        device_kernels(a)->elementwise->scale(x, 2, COUNT);
        want_sum += want_x;
        want_x *= i % 2 ? 1 : 6;
        if (want_x > 1000) {
            device_kernels(a)->elementwise->fill(x, 1, COUNT);
            want_x = 1;
        }
    }
    expect_all(a, x, want_x, COUNT, "x");
    expect_all(b, sum, want_sum, COUNT, "sum");
    free_floats(a, x, COUNT);
    free_floats(b, y, COUNT);
    free_floats(b, sum, COUNT);
}

static void test_order_between_devices(void **state) {
    (void)state;
    Device *a = open_device("cuda:0"), *b = open_device("cuda:0");
    play(a, b);
    if (device_available("cuda") > 1) {
        Device *c = open_device("cuda:1");
        play(a, c);
        play(c, b);
        device_close(c);
    }
    device_close(b);
    device_close(a);
}

enum { OTHERS = 3 };

// Opens three other Devices, on two cards if there are two.
static void open_others(Device *others[OTHERS]) {
    for (int i = 0; i < OTHERS; i++)
        others[i] = open_device(i > 0 && device_available("cuda") > 1 ? "cuda:1" : "cuda:0");
}

// Each copy has the source's contents at the time of the call.
static void test_copies_to_all(void **state) {
    (void)state;
    Device *from = open_device("cuda:0"), *others[OTHERS];
    DeviceCopy copies[OTHERS];
    float *x = floats(from, COUNT), *sums[OTHERS];
    open_others(others);
    for (int i = 0; i < OTHERS; i++) {
        copies[i] = (DeviceCopy){others[i], floats(others[i], COUNT)};
        sums[i] = filled(others[i], 0, COUNT);
    }
    for (int i = 1; i <= ROUNDS; i++) {
        if (i % 5 == 0) linger(others[i % OTHERS]);
        device_kernels(from)->elementwise->fill(x, (float)i, COUNT);
        device_copy_to_all(copies, OTHERS, from, x, COUNT * sizeof *x);
        device_kernels(from)->elementwise->fill(x, -1000, COUNT);
        for (int o = 0; o < OTHERS; o++)
            device_kernels(others[o])->elementwise->accumulate(sums[o], copies[o].destination,
                                                               COUNT);
    }
    for (int i = 0; i < OTHERS; i++) {
        expect_all(others[i], sums[i], ROUNDS * (ROUNDS + 1) / 2, COUNT, "the sum of the copies");
        assert_int_equal(others[i]->copied_bytes, ROUNDS * COUNT * sizeof *x);
        free_floats(others[i], copies[i].destination, COUNT);
        free_floats(others[i], sums[i], COUNT);
        device_close(others[i]);
    }
    free_floats(from, x, COUNT);
    device_close(from);
}

// Terms of other devices are copied through staging memory in many parts, terms of the same device
// are added directly. The staging memory is in use before and after the call, the terms' memory
// after it.
static void test_accumulate(void **state) {
    (void)state;
    enum { STAGING = 1000, TERMS = OTHERS + 1 };
    Device *to = open_device("cuda:0"), *others[OTHERS];
    DeviceTerm terms[TERMS];
    float *sum = filled(to, 0, COUNT), *staging = floats(to, STAGING), want = 0;
    open_others(others);
    for (int t = 0; t < TERMS; t++) {
        Device *from = t < OTHERS ? others[t] : to;
        terms[t] = (DeviceTerm){sum, from, floats(from, COUNT), COUNT};
    }
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 5 == 0) linger(i % 2 ? to : others[i % OTHERS]);
        device_kernels(to)->elementwise->fill(staging, -2000, STAGING);
        for (int t = 0; t < TERMS; t++) {
            device_kernels(terms[t].from)
                ->elementwise->fill((float *)terms[t].term, (float)t, COUNT);
            want += (float)t;
        }
        device_accumulate(to, terms, TERMS, staging, STAGING);
        for (int t = 0; t < TERMS; t++)
            device_kernels(terms[t].from)->elementwise->fill((float *)terms[t].term, -1000, COUNT);
    }
    expect_all(to, sum, want, COUNT, "the sum of the terms");
    assert_int_equal(to->copied_bytes, OTHERS * ROUNDS * COUNT * sizeof *sum);
    for (int t = 0; t < TERMS; t++) free_floats(terms[t].from, (float *)terms[t].term, COUNT);
    free_floats(to, sum, COUNT);
    free_floats(to, staging, STAGING);
    for (int i = 0; i < OTHERS; i++) device_close(others[i]);
    device_close(to);
}

// Freed memory that kernels still use may be reused at once: the new owner's work runs after them.
static void test_memory_is_handed_on_in_order(void **state) {
    (void)state;
    Device *device = open_device("cuda:0");
    float *sum = filled(device, 0, COUNT);
    for (int i = 1; i <= ROUNDS; i++) {
        float *x = filled(device, (float)i, COUNT);
        device_kernels(device)->elementwise->accumulate(sum, x, COUNT);
        free_floats(device, x, COUNT);
    }
    expect_all(device, sum, ROUNDS * (ROUNDS + 1) / 2, COUNT, "the sum");
    free_floats(device, sum, COUNT);
    device_close(device);
}

// ---- uploads and readbacks ----------------------------------------------------------------------

// As in a loader: two batches in flight, each uploaded while the previous one is in use.
static void test_upload(void **state) {
    (void)state;
    enum { SLOTS = 2 };
    Device *device = open_device("cuda:0");
    float *sum = filled(device, 0, COUNT), *pinned[SLOTS], *batch[SLOTS];
    DeviceEvent *unused[SLOTS], *sent[SLOTS];
    for (size_t s = 0; s < SLOTS; s++) {
        pinned[s] = device_host_alloc(device, COUNT * sizeof(float));
        batch[s] = floats(device, COUNT);
        unused[s] = device_event_create(device);
        sent[s] = device_event_create(device);
    }
    float want = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int s = i % SLOTS;
        if (i % 7 == 0) linger(device);
        device_event_wait(sent[s]); // never recorded: returns at once
        for (size_t k = 0; k < COUNT; k++) pinned[s][k] = (float)(i + 1);
        device_upload(device, batch[s], pinned[s], COUNT * sizeof(float), unused[s], sent[s]);
        device_kernels(device)->elementwise->accumulate(sum, batch[s], COUNT);
        device_event_record(unused[s]);
        want += (float)(i + 1);
    }
    expect_all(device, sum, want, COUNT, "the sum of the batches");
    for (size_t s = 0; s < SLOTS; s++) {
        device_host_free(device, pinned[s]);
        free_floats(device, batch[s], COUNT);
        device_event_close(unused[s]);
        device_event_close(sent[s]);
    }
    device_event_close(NULL);
    free_floats(device, sum, COUNT);
    device_close(device);
}

// An upload into memory that another owner has just freed, with kernels in flight.
static void test_upload_into_new_memory(void **state) {
    (void)state;
    Device *device = open_device("cuda:0");
    float *pinned = device_host_alloc(device, COUNT * sizeof(float));
    DeviceEvent *never = device_event_create(device), *sent = device_event_create(device);
    for (size_t k = 0; k < COUNT; k++) pinned[k] = 7;
    float *sum = filled(device, 0, COUNT);
    for (int i = 0; i < 6; i++) {
        linger(device);
        float *old = filled(device, 1, COUNT);
        device_kernels(device)->elementwise->accumulate(sum, old, COUNT);
        free_floats(device, old, COUNT);
        float *new = floats(device, COUNT);
        assert_ptr_equal(new, old); // the case under test
        device_upload(device, new, pinned, COUNT * sizeof(float), i % 2 ? never : NULL,
                      i % 3 ? sent : NULL);
        device_kernels(device)->elementwise->accumulate(sum, new, COUNT);
        free_floats(device, new, COUNT);
    }
    expect_all(device, sum, 6 * 8, COUNT, "the sum of old and new");
    free_floats(device, sum, COUNT);
    device_event_close(never);
    device_event_close(sent);
    device_host_free(device, pinned);
    device_close(device);
}

// A readback returns the values at the time of its call.
static void test_readback(void **state) {
    (void)state;
    Device *device = open_device("cuda:0");
    float *x = filled(device, 0, 3);
    Readback *readbacks[4];
    for (size_t i = 0; i < 4; i++) readbacks[i] = readback_create(device, 3 * sizeof *x);
    for (int round = 0; round < 3; round++) {
        linger(device);
        for (size_t i = 0; i < 4; i++) {
            device_kernels(device)->elementwise->fill(x, (float)(10 * round) + (float)i, 3);
            readback_start(readbacks[i], x);
        }
        device_kernels(device)->elementwise->fill(x, -1, 3);
        for (size_t i = 4; i-- > 0;) {
            const float *numbers = readback_wait(readbacks[i]);
            for (size_t k = 0; k < 3; k++)
                assert_true(numbers[k] == (float)(10 * round) + (float)i);
        }
    }
    for (size_t i = 0; i < 4; i++) readback_close(readbacks[i]);
    readback_close(NULL);
    free_floats(device, x, 3);
    device_synchronize(device);
    device_close(device);
}

// ---- graphs -------------------------------------------------------------------------------------

// Sums the columns of x[COUNT, columns], as for a bias's gradient.
static void sum_columns(Device *device, float *sums, const float *x, size_t columns) {
    device_kernels(device)->matrix->linear_weight_gradient(
        (Compute){PRECISION_F32, NULL}, (LinearShape){COUNT, columns, 0, NULL, 0}, x, NULL,
        &(LinearGradient){.dbias = sums});
}

// Records y += x, twice, and a kernel that needs the device's own workspace.
static DeviceGraph *record_step(Device *device, float *y, const float *x, float *columns) {
    Error err = {0};
    if (device_graph_begin(device, &err) != 0) fail_msg("%s", err.message);
    device_kernels(device)->elementwise->accumulate(y, x, COUNT);
    device_kernels(device)->elementwise->scale(y, 2, COUNT);
    sum_columns(device, columns, y, 1);
    DeviceGraph *graph = device_graph_end(device, &err);
    if (!graph) fail_msg("%s", err.message);
    return graph;
}

// Makes the device's workspace grow, and allocates all small free blocks: no allocation may overlap
// memory that the graph writes.
enum { TENANTS = 64, TENANT = 128 };
static void crowd(Device *device, float *tenants[TENANTS]) {
    enum { WIDE = 64 };
    float *wide = filled(device, 1, WIDE * (size_t)COUNT), *sums = floats(device, WIDE);
    sum_columns(device, sums, wide, WIDE);
    expect_all(device, sums, COUNT, WIDE, "sums of columns");
    free_floats(device, wide, WIDE * (size_t)COUNT);
    free_floats(device, sums, WIDE);
    for (int i = 0; i < TENANTS; i++) tenants[i] = filled(device, (float)i, TENANT);
}

static void test_graph(void **state) {
    (void)state;
    Device *device = open_device("cuda:0");
    float *x = filled(device, 1, COUNT), *y = filled(device, 0, COUNT);
    float *column = filled(device, 0, 1), *tenants[TENANTS] = {NULL};
    sum_columns(device, column, x, 1); // allocates the workspace before the recording
    DeviceGraph *graph = record_step(device, y, x, column);
    expect_all(device, y, 0, COUNT, "recorded, not done");

    float want = 0;
    for (int i = 0; i < 8; i++) {
        device_graph_launch(device, graph);
        want = 2 * (want + (float)(i < 4 ? 1 : i));
        if (i >= 3)
            device_kernels(device)->elementwise->fill(x, (float)(i + 1), COUNT); // next launch
        if (i == 5) crowd(device, tenants);
    }
    expect_all(device, y, want, COUNT, "replayed");
    expect_all(device, column, want * COUNT, 1, "the sum in the graph");
    for (int i = 0; i < TENANTS; i++) {
        expect_all(device, tenants[i], (float)i, TENANT, "memory beside the graph's");
        free_floats(device, tenants[i], TENANT);
    }

    DeviceGraph *second = record_step(device, x, y, column);
    device_graph_close(device, graph);
    device_graph_launch(device, second);
    expect_all(device, x, 2 * (8 + want), COUNT, "a second graph");
    device_graph_close(device, second);
    device_graph_close(device, NULL);
    free_floats(device, x, COUNT);
    free_floats(device, y, COUNT);
    free_floats(device, column, 1);
    device_close(device);
}

// ---- threads ------------------------------------------------------------------------------------

typedef struct Job {
    Device *device;
    float result;
} Job;

static void run_job(void *argument) {
    Job *job = argument;
    Device *device = job->device;
    float *x = filled(device, 1, COUNT), *sum = filled(device, 0, COUNT);
    for (int i = 0; i < ROUNDS; i++) {
        device_kernels(device)->elementwise->accumulate(sum, x, COUNT);
        device_kernels(device)->elementwise->fill(x, (float)(i + 2), COUNT);
    }
    device_copy(NULL, &job->result, device, sum + COUNT - 1, sizeof job->result);
    free_floats(device, x, COUNT);
    free_floats(device, sum, COUNT);
}

// Two replicas on one card, each with its own thread, while this thread uses a third.
static void test_threads(void **state) {
    (void)state;
    Job jobs[3] = {{0}};
    Error err = {0};
    for (size_t i = 0; i < 3; i++) jobs[i].device = open_device("cuda:0");
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 2; i++) device_submit(jobs[i].device, run_job, &jobs[i]);
        run_job(&jobs[2]);
        for (size_t i = 0; i < 2; i++)
            if (device_wait(jobs[i].device, PATIENCE, &err) != 0) fail_msg("%s", err.message);
        for (size_t i = 0; i < 3; i++) {
            assert_true(jobs[i].result == ROUNDS * (ROUNDS + 1) / 2);
            jobs[i].result = 0;
        }
    }
    for (size_t i = 0; i < 3; i++) device_close(jobs[i].device);
}

// ---- errors -------------------------------------------------------------------------------------

static void test_no_such_card(void **state) {
    (void)state;
    Error err = {0};
    assert_null(device_open("cuda:999", &err));
    assert_int_equal(err.status, STATUS_SKIPPED);
    char want[64];
    int cards = device_available("cuda");
    snprintf(want, sizeof want, "device cuda:999: there %s %d GPU", cards == 1 ? "is" : "are",
             cards);
    check_message(&err, want);
}

static void fault_out_of_memory(Device *device) {
    (void)device_alloc(device, 1000);
    (void)device_alloc(device, (size_t)1 << 50);
}

static void fault_alloc_in_graph(Device *device) {
    Error err = {0};
    device_graph_begin(device, &err);
    (void)device_alloc(device, 1000);
}

static void fault_wait_in_graph(Device *device) {
    Error err = {0};
    float number;
    float *x = filled(device, 1, 1);
    device_graph_begin(device, &err);
    device_copy(NULL, &number, device, x, sizeof number);
}

static void fault_never_freed(Device *device) {
    (void)device_alloc(device, 1000);
    device_close(device);
}

static const struct Fault {
    const char *name;
    void (*run)(Device *device);
    const char *says;
} FAULTS[] = {
    {"out-of-memory", fault_out_of_memory,
     "error: cuda:0 is out of memory: asked for 1125899906842624 bytes, 1000 in use, "},
    {"alloc-in-graph", fault_alloc_in_graph, "cuda:0 takes or gives back memory while it records"},
    {"wait-in-graph", fault_wait_in_graph, "cuda:0 cannot record this in a graph: a copy from or"},
    {"never-freed", fault_never_freed, "cuda:0 closes with 1000 bytes still allocated"},
};
enum { FAULT_COUNT = sizeof FAULTS / sizeof *FAULTS };

static void test_faults(void **state) {
    (void)state;
    char program[4000] = {0}, command[200], said[2000];
    assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    assert_int_equal(setenv("PROGRAM", program, 1), 0); // the shell must not parse the path
    for (size_t i = 0; i < FAULT_COUNT; i++) {
        snprintf(command, sizeof command, "exec \"$PROGRAM\" %s 2>&1", FAULTS[i].name);
        FILE *pipe = popen(command, "r");
        assert_non_null(pipe);
        size_t length = fread(said, 1, sizeof said - 1, pipe);
        said[length] = '\0';
        assert_int_not_equal(pclose(pipe), 0);
        if (!strstr(said, FAULTS[i].says)) fail_msg("%s said: %s", FAULTS[i].name, said);
    }
}

int main(int argc, char **argv) {
    Error err = {0};
    Device *device = device_open("cuda:0", &err);
    if (!device && err.status == STATUS_SKIPPED) {
        fprintf(stderr, "skipped: %s\n", err.message);
        return STATUS_SKIPPED;
    }
    if (!device) error_exit(&err);
    for (size_t i = 0; i < FAULT_COUNT && argc > 1; i++)
        if (strcmp(argv[1], FAULTS[i].name) == 0) FAULTS[i].run(device);
    if (argc > 1) return 0; // the fault did not end the program
    device_close(device);

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_order_between_devices),
        cmocka_unit_test(test_copies_to_all),
        cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_memory_is_handed_on_in_order),
        cmocka_unit_test(test_upload),
        cmocka_unit_test(test_upload_into_new_memory),
        cmocka_unit_test(test_readback),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_no_such_card),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
