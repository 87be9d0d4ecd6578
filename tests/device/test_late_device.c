/* test_late_device.c: events, uploads, readbacks and sums on an asynchronous device that executes
 * nothing before a wait (rigs/late_device.h): the order of work that device.c guarantees on GPUs.
 * Also names of devices and their byte counts.
 */
#include "common/device/link.h"
#include "tests/rigs/late_device.h"

enum { COUNT = 100, ROUNDS = 5 };

typedef struct Fill {
    float *memory;
    float value;
} Fill;

static void fill(void *argument) {
    const Fill *f = argument;
    for (int i = 0; i < COUNT; i++) f->memory[i] = f->value;
}

typedef struct Sum {
    const float *memory;
    float *sum;
} Sum;

static void sum(void *argument) {
    const Sum *s = argument;
    *s->sum = 0;
    for (int i = 0; i < COUNT; i++) *s->sum += s->memory[i];
}

// ---- uploads ------------------------------------------------------------------------------------

// One device buffer and one host buffer, used repeatedly.
static void uploads_wait_for_their_events(void **state) {
    (void)state;
    for (LateCopies copies = LATE_EAGER; copies <= LATE_LAZY; copies++) {
        Device *device = late_open(copies);
        float *host = device_host_alloc(device, COUNT * sizeof *host), sums[ROUNDS];
        float *memory = device_alloc(device, COUNT * sizeof *memory);
        Sum work[ROUNDS];
        DeviceEvent *free = device_event_create(device), *done = device_event_create(device);
        device_event_wait(done); // never recorded: returns at once
        for (int k = 0; k < ROUNDS; k++) {
            device_event_wait(done);
            fill(&(Fill){host, (float)(k + 1)});
            device_upload(device, memory, host, COUNT * sizeof *host, free, done);
            work[k] = (Sum){memory, &sums[k]};
            late_work(device, sum, &work[k]);
            device_event_record(free);
        }
        assert_true(late_of(device)->done < late_of(device)->queued);
        device_synchronize(device);
        for (int k = 0; k < ROUNDS; k++) assert_true(sums[k] == (float)(COUNT * (k + 1)));
        device_upload(device, memory, host, 0, free, done); // zero bytes
        device_upload(device, memory, host, COUNT * sizeof *host, NULL, NULL);
        device_synchronize(device);
        assert_true(memory[COUNT - 1] == ROUNDS);
        device_event_close(free);
        device_event_close(done);
        device_event_close(NULL);
        device_free(device, memory, COUNT * sizeof *memory);
        device_free(device, NULL, 1000);
        device_host_free(device, host);
        device_host_free(device, NULL);
        device_close(device);
    }
}

// ---- readbacks ----------------------------------------------------------------------------------

static void readbacks_are_of_their_time(void **state) {
    (void)state;
    Device *device = late_open(LATE_EAGER);
    float *memory = device_alloc(device, COUNT * sizeof *memory);
    Readback *back[2];
    for (int i = 0; i < 2; i++) back[i] = readback_create(device, COUNT * sizeof *memory);
    Fill work[ROUNDS];
    for (int k = 0; k < ROUNDS; k++) {
        work[k] = (Fill){memory, (float)(k + 1)};
        late_work(device, fill, &work[k]);
        readback_start(back[k % 2], memory);
        if (k == 0) continue;
        const float *was = readback_wait(back[(k - 1) % 2]); // of the previous round
        for (int i = 0; i < COUNT; i++) assert_true(was[i] == (float)k);
        assert_int_equal(late_of(device)->queued - late_of(device)->done, 2);
    }
    for (int i = 0; i < 2; i++) readback_close(back[i]); // with a readback in flight
    readback_close(NULL);
    device_free(device, memory, COUNT * sizeof *memory);
    device_close(device);
}

// ---- copies -------------------------------------------------------------------------------------

static int copied_to_all;

static void copy_to_all(const DeviceCopy *copies, size_t count, Device *from, const void *source,
                        size_t bytes) {
    copied_to_all++;
    for (size_t i = 0; i < count; i++) late_copy(NULL, copies[i].destination, from, source, bytes);
}

// Copies from the host, between devices of different and of the same kind, within a device, to the
// host. Copies from another device are counted by the receiving device.
static void copies_are_in_order_and_counted(void **state) {
    (void)state;
    Error err = {0};
    enum { BYTES = COUNT * sizeof(float) };
    Device *late = late_open(LATE_EAGER), *other = late_open(LATE_EAGER);
    Device *cpu = device_open("cpu:0", &err), *all[] = {late, other, cpu};
    float *at[3], host[COUNT] = {0};
    for (int i = 0; i < 3; i++) at[i] = device_alloc(all[i], BYTES);
    Fill work[3];
    for (int i = 0; i < 3; i++) {
        work[i] = (Fill){at[0], (float)(i + 7)};
        late_work(late, fill, &work[i]);
        device_copy(all[i], at[i], late, at[0], i ? BYTES : 0);
        device_copy(NULL, host, all[i], at[i], BYTES);
        for (int k = 0; k < COUNT; k++) assert_true(host[k] == (float)(i + 7));
        assert_int_equal(all[i]->copied_bytes, i ? BYTES : 0);
    }
    device_copy(cpu, at[2], NULL, host, BYTES);
    device_copy(NULL, host, NULL, at[2], BYTES); // within host memory
    assert_int_equal(cpu->copied_bytes, BYTES);
    const DeviceCopy copies[] = {{other, at[1]}, {cpu, at[2]}};
    for (int way = 0; way < 2; way++) {
        work[0].value = (float)(20 + way);
        late_work(late, fill, &work[0]);
        late_of(late)->backend.copy_to_all = way ? copy_to_all : NULL;
        device_copy_to_all(copies, 2, late, at[0], 0);
        device_copy_to_all(copies, 2, late, at[0], BYTES);
        assert_int_equal(copied_to_all, way);
        for (int i = 1; i < 3; i++) {
            assert_int_equal(all[i]->copied_bytes, (size_t)(2 + way) * BYTES);
            for (int k = 0; k < COUNT; k++) assert_true(at[i][k] == (float)(20 + way));
        }
    }
    assert_int_equal(late->copied_bytes, 0);
    for (int i = 0; i < 3; i++) device_free(all[i], at[i], BYTES);
    for (int i = 0; i < 3; i++) device_close(all[i]);
}

// ---- sums ---------------------------------------------------------------------------------------

enum { LINE = MEMORY_ALIGNMENT / sizeof(float), TERM = 5 * LINE + 3, DEVICES = 3 };

static float start_of(int device, int i) {
    return (float)(1000 * (device + 1) + i);
}

// Accumulates each device's memory into device 0's, twice, while earlier work still reads the
// staging memory. staging: its size in floats. ahead: a part is copied while the previous one is
// added.
static void check_sum(LateCopies copies, size_t staging, bool ahead) {
    Device *all[DEVICES];
    float *at[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
        all[d] = late_open(copies);
        at[d] = device_alloc(all[d], TERM * sizeof *at[d]);
        for (int i = 0; i < TERM; i++) at[d][i] = start_of(d, i);
    }
    float *total = device_alloc(all[0], TERM * sizeof *total);
    float *room = device_alloc(all[0], staging * sizeof *room);
    float seen[COUNT];
    memset(total, 0, TERM * sizeof *total);
    for (size_t i = 0; i < staging; i++) room[i] = 5;
    for (size_t i = 0; i < staging && i < COUNT; i++) {
        seen[i] = 0;
        late_queue(late_of(all[0]), (LateWork){NULL, seen, seen + i, room + i, 1});
    }
    const DeviceTerm terms[] = {{total, all[1], at[1], TERM},
                                {total, all[0], at[0], TERM},
                                {total + 2, all[2], at[2], TERM - 2},
                                {total, all[1], at[1], 0}};
    for (int times = 1; times <= 2; times++) {
        device_accumulate(all[0], terms, 4, room, staging);
        if (ahead) assert_true(late_of(all[0])->done + 2 <= late_of(all[0])->queued);
    }
    assert_int_equal(all[0]->copied_bytes, 2 * (2 * TERM - 2) * sizeof(float));
    assert_int_equal(all[1]->copied_bytes + all[2]->copied_bytes, 0);
    device_synchronize(all[0]);
    for (size_t i = 0; i < staging && i < COUNT; i++) assert_true(seen[i] == 5);
    for (int i = 0; i < TERM; i++) {
        float wanted = start_of(0, i) + start_of(1, i) + (i < 2 ? 0 : start_of(2, i - 2));
        assert_true(total[i] == 2 * wanted);
    }
    device_free(all[0], room, staging * sizeof *room);
    device_free(all[0], total, TERM * sizeof *total);
    for (int d = 0; d < DEVICES; d++) device_free(all[d], at[d], TERM * sizeof *at[d]);
    for (int d = 0; d < DEVICES; d++) device_close(all[d]);
}

static void sums_of_parts(void **state) {
    (void)state;
    const size_t room[] = {1, LINE, 2 * LINE - 1, 2 * LINE, 3 * LINE + 5, 4 * LINE, 12 * LINE};
    for (LateCopies copies = LATE_EAGER; copies <= LATE_LAZY; copies++)
        for (size_t i = 0; i < sizeof room / sizeof *room; i++)
            check_sum(copies, room[i], room[i] >= (size_t)2 * LINE);
}

// ---- names and bytes ----------------------------------------------------------------------------

static void names_of_devices(void **state) {
    (void)state;
    static const char FORM[] = "expected a name like cpu:0";
    static const struct {
        const char *name, *words; // words of the error; NULL: the device exists
    } cases[] = {{"cpu", NULL},
                 {"cpu:0", NULL},
                 {"cpu:999", NULL},
                 {"dry-cpu:7", NULL},
                 {"cpu:1000", FORM},
                 {"cpu:", FORM},
                 {"cpu:1x", FORM},
                 {":1", FORM},
                 {"", FORM},
                 {"elevenchars", "this build has no backend \"elevenchars\""},
                 {"twelve-chars", FORM}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        Device *device = device_open(cases[i].name, &err);
        if ((device != NULL) != (cases[i].words == NULL)) fail_msg("%s", cases[i].name);
        if (!device) check_message(&err, cases[i].words);
        device_close(device);
    }
}

static void bytes_are_counted(void **state) {
    (void)state;
    Error err = {0};
    Device *device = late_open(LATE_EAGER);
    void *nothing = device_alloc(device, 0), *host = device_host_alloc(device, 0);
    void *some = device_alloc(device, 100), *more = device_alloc(device, 30);
    assert_true(nothing && host && device->bytes == 130 && device->peak_bytes == 130);
    device_free(device, some, 100);
    assert_true(device->bytes == 30 && device->peak_bytes == 130);
    device_reset_peak(device);
    assert_int_equal(device->peak_bytes, 30);
    device_free(device, more, 30);
    device_free(device, nothing, 0);
    device_host_free(device, host);
    device_close(device);
    // Only copies between two devices with links use a link.
    Device *linked = device_open("cpu:0", &err), *plain = device_open("cpu:1", &err);
    char from[8] = "a copy", to[8] = "";
    device_emulate_link(linked, (LinkSpeed){.bytes_per_s = 1e9, .latency_s = 0});
    device_copy(linked, to, plain, from, sizeof to);
    assert_string_equal(to, "a copy");
    device_copy(plain, to, linked, "another", sizeof to);
    assert_string_equal(to, "another");
    device_close(linked);
    device_close(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uploads_wait_for_their_events),
        cmocka_unit_test(readbacks_are_of_their_time),
        cmocka_unit_test(copies_are_in_order_and_counted),
        cmocka_unit_test(sums_of_parts),
        cmocka_unit_test(names_of_devices),
        cmocka_unit_test(bytes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
