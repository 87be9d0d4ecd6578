/* node_rig.h: a node's launcher without ranks, for tests of the coordination of nodes: a store, the
 * node's connection to it, and a peer's connection through which the test writes as other nodes
 * would. Waiting takes no time: it calls the test's `on_wait`. Contains stubs of the other parts of
 * ddprun.
 */
#ifndef TESTS_RIGS_NODE_RIG_H
#define TESTS_RIGS_NODE_RIG_H

#include "tests/rigs/screen.h"

#include <signal.h>

#include "common/base/clock.h"
#include "common/base/machine.h"
#include "ddp/launch/elastic.h"

enum { LOCAL_RANKS = 2 };

static LaunchOptions options;
static Launch launch;
static Store *peer;
static struct {
    void (*on_wait)(int round); // rounds count from 1
    int rounds;
    int signal;        // the received signal, consumed by launch_take_signal
    LaunchCause ended; // argument of launch_end_ranks
    int ended_with;    // its signal number
} rig;

void launch_wait(Launch *of, uint64_t until_ns) {
    (void)of;
    assert_true(until_ns <= clock_ns_after(0.1));
    launch.next_beat_ns = 0; // a heartbeat is due
    if (rig.on_wait) rig.on_wait(++rig.rounds);
    if (!rig.on_wait)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 5000000}, NULL);
    assert_true(rig.rounds < 100);
}

int launch_take_signal(Launch *of) {
    (void)of;
    const int signal = rig.signal;
    rig.signal = 0;
    return signal;
}

void launch_end_ranks(Launch *of, LaunchCause cause, int signal_number) {
    (void)of;
    rig.ended = cause;
    rig.ended_with = signal_number;
}

static inline uint64_t ago(double seconds) {
    return clock_ns() - (uint64_t)(seconds * 1e9);
}

// Fills the stack with non-zero bytes, so that uninitialised arrays of later calls are not zero.
static inline void soil_stack(void) {
    volatile char soil[16384];
    for (size_t i = 0; i < sizeof soil; i++) soil[i] = '#';
}

static inline int begin(void **state) {
    (void)state;
    Error err = {0};
    soil_stack();
    memset(&rig, 0, sizeof rig);
    options = (LaunchOptions){.local_ranks = LOCAL_RANKS,
                              .nodes = 3,
                              .min_nodes = 3,
                              .master_addr = "127.0.0.1",
                              .heartbeat_s = 300,
                              .start_timeout_s = 300,
                              .exit_timeout_s = 300,
                              .max_restarts = 1};
    launch = (Launch){.options = &options, .root = -1, .alive = LOCAL_RANKS, .nodes = 3};
    strcpy(launch.token, "secret");
    strcpy(launch.host, "mars");
    screen_begin(false);
    launch.output = output_open(&options, &err);
    launch.server = store_serve("127.0.0.1", 0, launch.token, &err);
    CHECK_OK(launch.output && launch.server, err);
    launch.port = store_server_port(launch.server);
    peer = store_connect("127.0.0.1", launch.port, launch.token, 20, &err);
    CHECK_OK(peer, err);
    store_set_prefix(peer, "launcher");
    return 0;
}

static inline int end(void **state) {
    (void)state;
    store_close(peer);
    store_close(launch.store);
    store_server_close(launch.server);
    elastic_close(&launch);
    free(launch.others);
    output_close(launch.output);
    screen.begun = false;
    return 0;
}

// Connects the node to the store, unless the tested function does it.
static inline void connect_node(void) {
    Error err = {0};
    Patience patience = patience_begin(20);
    assert_int_equal(nodes_reach_store(&launch, &patience, &err), 0);
    assert_true(clock_seconds_since(launch.answered_ns) < 20);
}

static inline void put(const char *key, const char *text) {
    Error err = {0};
    CHECK_OK(store_set(peer, key, text, strlen(text), &err) == 0, err);
}

static inline void add(const char *key, int64_t amount) {
    int64_t sum;
    Error err = {0};
    CHECK_OK(store_add(peer, key, amount, &sum, &err) == 0, err);
}

// Asserts the value of a key; "" if it does not exist.
static inline void holds(const char *key, const char *text) {
    char value[NODES_TEXT_MAX];
    Error err = {0};
    CHECK_OK(store_compare_set(peer, key, "-", "-", value, sizeof value, &err) == 0, err);
    assert_string_equal(value, text);
}

// Writes a valid member behind the array's end: it must not be read.
static inline void add_ghost(void) {
    Elastic *e = launch.elastic;
    e->members = memory_grow(e->members, (size_t)e->count + 1, sizeof *e->members);
    e->members[e->count] = (ElasticMember){
        .beats = 1, .heard_ns = clock_ns(), .ready_for = 9, .generation = -1, .name = "ghost"};
}

// Asserts ddprun's output since the last call.
static inline void says(const char *lines) {
    output_pump(launch.output);
    shows(2, lines);
}

// Asserts that the output since the last call is one line: waiting for `whom`, for 3 s or a little
// more.
static inline void says_waiting(const char *whom, const char *most) {
    char begin[200];
    double seconds = 0;
    snprintf(begin, sizeof begin, "ddprun: waiting for %s: ", whom);
    output_pump(launch.output);
    const char *text = screen.text[2];
    assert_memory_equal(text, begin, strlen(begin));
    assert_int_equal(sscanf(text + strlen(begin), "%lf", &seconds), 1);
    assert_true(seconds >= 3 && seconds < 20);
    assert_non_null(strstr(text, most));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    screen_clear();
}

#define NODE(test) cmocka_unit_test_setup_teardown(test, begin, end)

#endif
