/* test_nodes.c: how a node's launcher observes the other nodes (ddp/launch/nodes.c): keys, silence,
 * the end of an attempt, barriers. This test writes the other nodes' keys.
 */
#include "tests/rigs/node_rig.h"

// ---- Keys and heartbeats ----------------------------------------------------------------------

static void test_keys(void **state) {
    (void)state;
    char stands[NODES_TEXT_MAX];
    Error err = {0};
    launch_publish_end(&launch, END_FAILED, "without a store"); // has no effect
    launch_beat(&launch);
    launch_check_nodes(&launch);
    launch_drain_nodes(&launch);
    connect_node();
    assert_string_equal(nodes_claim(&launch, "k", NULL, stands), "");
    assert_string_equal(nodes_claim(&launch, "k", "mine", stands), "mine");
    assert_string_equal(nodes_claim(&launch, "k", "other", stands), "mine");
    assert_string_equal(nodes_claim(&launch, "k", NULL, stands), "mine");
    holds("k", "mine");
    assert_int_equal(nodes_count(&launch, "point", 7, 2, &err), 2);
    assert_int_equal(nodes_count(&launch, "point", 7, 0, &err), 2);
    holds("point_7", "2");
    put("point_7", "text");
    assert_int_equal(nodes_count(&launch, "point", 7, 1, &err), -1);
    assert_int_equal(err.status, STATUS_FAILED);
    store_server_close(launch.server);
    launch.server = NULL;
    assert_string_equal(nodes_claim(&launch, "k", NULL, strcpy(stands, "old")), "");
}

// A beat that the store has answered counts as a sign of node 0, also with elastic nodes.
static void test_beats(void **state) {
    (void)state;
    Elastic elastic = {.member = 2, .ready_for = 3, .name = "mars"};
    connect_node();
    for (int i = 0; i < 4; i++) {
        launch.elastic = i % 2 ? &elastic : NULL;
        launch.next_beat_ns = launch.answered_ns = 0;
        launch_beat(&launch);
        assert_int_equal(launch.answered_ns > ago(20), i < 2);
        if (i == 0) holds("alive_0", "1");
        if (i == 1) holds("member_2", "1 3 mars");
        if (i == 1) store_server_close(launch.server), launch.server = NULL;
    }
    launch.elastic = NULL;
}

static void test_silence_of_nodes(void **state) {
    (void)state;
    static const double cases[][2] = {{0, 10}, {0.5, 3}, {3, 3}, {4.5, 4.5}, {10, 10}, {300, 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        options.heartbeat_s = cases[i][0];
        assert_true(nodes_silence_s(&launch) == cases[i][1]);
    }
    connect_node();
    launch.answered_ns = ago(8);
    assert_false(nodes_have_lost_node_0(&launch));
    launch.answered_ns = ago(11);
    assert_true(nodes_have_lost_node_0(&launch));
}

static void test_ends_are_published_once(void **state) {
    (void)state;
    static const struct {
        LaunchEnd end;
        int node; // number with elastic nodes; -1: not elastic
        const char *value;
    } cases[] = {{END_FAILED, -1, "failed node 2: why"},  {END_CHANGED, -1, "changed node 2: why"},
                 {END_STOPPED, -1, "stop node 2: why"},   {END_STOPPED, 0, "stop node 2: why"},
                 {END_STOPPED, 1, "changed node 2: why"}, {END_FAILED, 1, "failed node 2: why"}};
    connect_node();
    launch.node = 2; // in this attempt
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        char key[20];
        Elastic elastic = {0};
        launch.elastic = cases[i].node >= 0 ? &elastic : NULL;
        options.node = cases[i].node;
        launch.attempt = i;
        launch_publish_end(&launch, cases[i].end, "why");
        launch_publish_end(&launch, END_FAILED, "too late");
        snprintf(key, sizeof key, "end_%d", i);
        holds(key, cases[i].value);
    }
    launch.elastic = NULL;
}

static void test_patience(void **state) {
    (void)state;
    static const double cases[][2] = {{8, 2}, {20, 5}, {40, 10}, {400, 10}};
    for (size_t i = 0; i < 4; i++) {
        Patience patience = patience_begin(cases[i][0]);
        assert_int_equal(patience.next_line_ns - patience.begin_ns, cases[i][1] * 1e9);
        assert_true(clock_seconds_since(patience.begin_ns) < 20);
        assert_false(patience_is_over(&patience));
        nodes_say_waiting(&launch, &patience, "others");
        patience.next_line_ns = patience.begin_ns = ago(cases[i][0] + 0.001);
        assert_true(patience_is_over(&patience));
    }
    says("");
    Patience patience = {80, ago(3), ago(0.1)};
    nodes_say_waiting(&launch, &patience, "others");
    says_waiting("others", " s of at most 80 s (--start-timeout)\n");
    nodes_say_waiting(&launch, &patience, "others"); // printed once
    says("");
    assert_true(patience.next_line_ns > clock_ns_after(5));
}

// ---- Polling ----------------------------------------------------------------------------------

static LaunchEnd poll_now(const char *wanted) {
    char text[NODES_TEXT_MAX] = "";
    launch.next_beat_ns = 0;
    const LaunchEnd end = nodes_poll(&launch, text);
    assert_string_equal(text, wanted);
    return end;
}

static void test_poll_sees_an_end(void **state) {
    (void)state;
    connect_node();
    launch.node = options.node = 1;
    launch.answered_ns = 0;
    assert_int_equal(poll_now(""), END_NONE);
    holds("alive_1", "1"); // the poll has written a beat
    assert_true(launch.answered_ns > ago(20));
    assert_true(launch.next_beat_ns > clock_ns() && launch.next_beat_ns <= clock_ns_after(1));
    put("end_0", "failed node 2: one");
    char text[NODES_TEXT_MAX];
    launch.next_beat_ns = clock_ns_after(20);
    assert_int_equal(nodes_poll(&launch, text), END_NONE); // the next beat is not due
    launch_beat(&launch);
    holds("alive_1", "1");
    assert_int_equal(poll_now("node 2: one"), END_FAILED);
    put("end_0", "changed node 0: two");
    assert_int_equal(poll_now("node 0: two"), END_CHANGED);
    put("end_0", "stop node 0: three");
    assert_int_equal(poll_now("node 0: three"), END_STOPPED);
    char long_text[NODES_TEXT_MAX + 1] = "";
    memset(long_text, 'x', NODES_TEXT_MAX);
    put("end_0", long_text); // the call fails, but the store answers
    assert_int_equal(poll_now(""), END_NONE);
    launch.attempt = 1;
    assert_int_equal(poll_now(""), END_NONE);
    holds("alive_1", "6");
}

static void test_poll_sees_silence(void **state) {
    (void)state;
    connect_node();
    launch.others = memory_zalloc(3 * sizeof *launch.others);
    launch.others[0] = (OtherNode){1, ago(99)}; // node 0 does not watch itself
    assert_int_equal(poll_now(""), END_NONE);
    assert_int_equal(launch.others[1].changed_ns, 0); // no beat yet
    add("alive_1", 1);
    add("alive_2", 7);
    for (int n = 1; n <= 2; n++) {
        assert_int_equal(poll_now(""), END_NONE);
        assert_true(launch.others[n].changed_ns > ago(20));
        assert_int_equal(launch.others[n].beats, n == 1 ? 1 : 7);
        launch.others[n].changed_ns = ago(8);
        assert_int_equal(poll_now(""), END_NONE);
        assert_true(launch.others[n].changed_ns < ago(7));
        launch.others[n].changed_ns = ago(11);
        char silent[80];
        snprintf(silent, sizeof silent, "the ddprun of node %d has been silent for 10 s", n);
        assert_int_equal(poll_now(silent), END_FAILED);
        add(n == 1 ? "alive_1" : "alive_2", 1); // a new beat
        assert_int_equal(poll_now(""), END_NONE);
    }
    launch.others[1].changed_ns = ago(11);
    options.node = 1; // only node 0 watches the others
    assert_int_equal(poll_now(""), END_NONE);
}

static void test_check_ends_the_ranks(void **state) {
    (void)state;
    connect_node();
    launch.node = options.node = 1;
    launch.next_beat_ns = 0;
    launch_check_nodes(&launch);
    assert_int_equal(rig.ended_with, 0);
    for (int i = 0; i < 2; i++) {
        launch.attempt = i;
        launch.next_beat_ns = 0;
        put(i == 0 ? "end_0" : "end_1", i == 0 ? "failed node 2: it broke" : "stop node 2: bye");
        launch_check_nodes(&launch);
        assert_int_equal(rig.ended, CAUSE_NODES);
        assert_int_equal(rig.ended_with, SIGTERM);
        assert_int_equal(launch.no_restart, i == 1);
        says(i == 0 ? "ddprun: node 2: it broke\n" : "ddprun: node 2: bye\n");
    }
    options.node = launch.node = 0; // publishes what it detects
    launch.others = memory_zalloc(3 * sizeof *launch.others);
    launch.others[2] = (OtherNode){0, ago(11)};
    launch.attempt = 2;
    launch.next_beat_ns = 0;
    launch_check_nodes(&launch);
    says("ddprun: the ddprun of node 2 has been silent for 10 s\n");
    holds("end_2", "failed node 0: the ddprun of node 2 has been silent for 10 s");
    store_server_close(launch.server);
    launch.server = NULL;
    launch.next_beat_ns = 0;
    launch_check_nodes(&launch);
    output_pump(launch.output);
    assert_non_null(
        strstr(screen.text[2], "ddprun: the ddprun of node 0 is gone: the connection "));
}

// ---- Rendezvous of the nodes ------------------------------------------------------------------

static void others_come(int round) {
    if (round > 2) return;
    add("there_-1", 1);
}

static void test_all_meet(void **state) {
    (void)state;
    Error err = {0};
    rig.on_wait = others_come;
    launch.node = 9;
    launch.nodes = 9;
    CHECK_OK(launch_rendezvous_nodes(&launch, &err) == 0, err);
    assert_int_equal(rig.rounds, 2);
    assert_int_equal(launch.attempt, 0);
    assert_int_equal(launch.node, 0);
    assert_int_equal(launch.nodes, 3);
    char mine[120], host[72];
    machine_name(host, sizeof host);
    snprintf(mine, sizeof mine, "%s, pid %d", host, (int)getpid());
    holds("node_0", mine);
    holds("size", "--nnodes 3 --nproc-per-node 2 at node 0");
    // A single node needs no rendezvous.
    launch.attempt = 5;
    options.nodes = options.min_nodes = 1;
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), 0);
    assert_int_equal(launch.attempt, 0);
    assert_int_equal(rig.rounds, 2);
    end(NULL), begin(NULL);
    options.nodes = options.min_nodes = 2; // two nodes need one
    add("there_-1", 1);
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), 0);
    holds("there_-1", "2");
}

// ---- Waiting for the store --------------------------------------------------------------------

static const Error *refusal; // error of the next attempt to connect; NULL: none

Store *__real_store_connect(const char *host, int port, const char *token, double s, Error *err);
Store *__wrap_store_connect(const char *host, int port, const char *token, double s, Error *err);

Store *__wrap_store_connect(const char *host, int port, const char *token, double s, Error *err) {
    if (!refusal) return __real_store_connect(host, port, token, s, err);
    assert_true(s == 1);
    return error_null(err, refusal->status, "%s", refusal->message);
}

static void store_comes(int round) {
    if (round == 2) refusal = NULL;
}

static void test_store_is_awaited(void **state) {
    (void)state;
    static const struct {
        Error error;
        const char *cause; // quoted in the message
    } cases[] = {
        {{STATUS_FAILED, "no store within 1 s: cannot connect to h:1: refused"},
         "cannot connect to h:1: refused"},
        {{STATUS_FAILED, "no store within 1 s"}, "no store within 1 s"},
        {{STATUS_FAILED, "no store without: a token"}, "no store without: a token"},
        {{STATUS_FAILED, "h: no store within 1 s: x"}, "h: no store within 1 s: x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char whom[100], wanted[200];
        Patience patience = {80, ago(3), ago(0.1)};
        Error err = {0};
        snprintf(whom, sizeof whom, "node 0 of 3 (%s)", cases[i].cause);
        refusal = &cases[i].error;
        options.node = 2;
        rig.on_wait = store_comes;
        rig.rounds = 0;
        launch.answered_ns = 0;
        assert_int_equal(nodes_reach_store(&launch, &patience, &err), 0);
        assert_int_equal(rig.rounds, 2);
        assert_true(launch.answered_ns > ago(20));
        says_waiting(whom, " s of at most 80 s (--start-timeout)\n");
        put("k", "v"); // must use the same prefix
        assert_string_equal(nodes_claim(&launch, "k", NULL, wanted), "v");
        store_close(launch.store);
        patience = (Patience){2, ago(2.5), ago(0.1)};
        refusal = &cases[i].error;
        assert_int_equal(nodes_reach_store(&launch, &patience, &err), -1);
        assert_int_equal(err.status, STATUS_FAILED);
        snprintf(wanted, sizeof wanted, "node 2 could not reach %s within 2 s", whom);
        assert_string_equal(err.message, wanted);
    }
    refusal = NULL;
}

// A wrong token ends the attempts; a signal ends the waiting.
static void test_store_is_not_awaited(void **state) {
    (void)state;
    static const Error usage = {STATUS_USAGE, "another token"}, failed = {STATUS_FAILED, "refused"};
    Error err = {0};
    options.node = 1;
    refusal = &usage;
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    assert_string_equal(err.message, "node 1: another token");
    free(launch.others);
    launch.others = NULL;
    options.min_nodes = 2; // also with elastic nodes
    assert_int_equal(launch_rendezvous_nodes(&launch, &(Error){0}), -1);
    assert_int_equal(launch.elastic->ready_for, MEMBER_LEFT);
    elastic_close(&launch);
    launch.elastic = NULL;
    options.min_nodes = 3;
    refusal = &failed;
    rig.signal = SIGTERM;
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), SIGTERM);
    assert_int_equal(launch.caught, SIGTERM);
    assert_null(launch.store);
    refusal = NULL;
}

static void test_a_node_is_missing(void **state) {
    (void)state;
    char text[300];
    Error err = {0};
    options.start_timeout_s = 0.4;
    add("alive_1", 1);
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), -1);
    assert_int_equal(err.status, STATUS_FAILED);
    snprintf(
        text, sizeof text,
        "node 2 of 3 did not come within 0.4 s: start ddprun there with --nnodes 3 --node-rank "
        "N --master-addr 127.0.0.1 --master-port %d and the same DDPRUN_TOKEN",
        launch.port);
    assert_string_equal(err.message, text);
    output_pump(launch.output);
    assert_non_null(strstr(screen.text[2], "ddprun: waiting for node 2: "));
    char end_text[400];
    snprintf(end_text, sizeof end_text, "stop node 0: %s", text);
    holds("end_-1", end_text);
    assert_int_equal(launch.cause, CAUSE_NONE);
}

static void test_two_nodes_are_missing(void **state) {
    (void)state;
    Error err = {0};
    options.start_timeout_s = 0.02;
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), -1);
    check_message(&err, "node 1, 2 of 3 did not come within");
}

static void signal_comes(int round) {
    if (round == 2) rig.signal = SIGINT;
}

static void other_node_stops(int round) {
    if (round == 2) put("end_-1", "stop node 1: two nodes are alike");
}

static void test_meeting_is_ended(void **state) {
    (void)state;
    Error err = {0};
    rig.on_wait = signal_comes;
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), SIGINT);
    assert_int_equal(launch.caught, SIGINT);
    assert_int_equal(launch.cause, CAUSE_SIGNAL);
    holds("end_-1", "stop node 0: its ddprun received a signal");
    end(NULL);
    begin(NULL);
    rig.on_wait = other_node_stops;
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), -1);
    check_message(&err, "node 1: two nodes are alike");
    assert_int_equal(launch.cause, CAUSE_NODES);
    assert_true(launch.no_restart);
}

// Nodes started with other sizes, or two nodes with the same number.
static void test_nodes_disagree(void **state) {
    (void)state;
    static const char *const sizes[] = {"--nnodes 2 --nproc-per-node 2 at node 1",
                                        "--nnodes 3 --nproc-per-node 1 at node 1",
                                        "--nnodes 3 --nproc-per-node 22 at node 1"};
    for (int i = 0; i < 4; i++) {
        Error err = {0};
        if (i > 0) end(NULL), begin(NULL);
        options.node = 2;
        put("size", i < 3 ? sizes[i] : "--nnodes 3 --nproc-per-node 2 at node 1"); // equal
        if (i == 3) put("node_2", "venus, pid 12");
        assert_int_equal(launch_rendezvous_nodes(&launch, &err), -1);
        assert_int_equal(err.status, STATUS_USAGE);
        if (i < 3) check_message(&err, sizes[i]);
        check_message(&err, i < 3 ? "and --nnodes 3 --nproc-per-node 2 at node 2 -- start ddprun"
                                  : "two nodes have --node-rank 2: venus, pid 12, and ");
        char published[NODES_TEXT_MAX];
        snprintf(published, sizeof published, "stop node 2: %.900s", err.message);
        holds("end_-1", published);
        holds("refused_-1", "1");
        holds("alive_2", "1");
        holds("there_-1", "");
    }
}

// ---- The end of an attempt --------------------------------------------------------------------

static void others_end(int round) {
    add("ended_4", round <= 2);
}

static void other_node_ends(int round) {
    if (round == 2) put("end_4", "failed node 1: rank 3 died");
}

static void other_node_says_stop(int round) {
    if (round == 2) put("end_4", "stop node 1: bye");
}

static void test_end_together(void **state) {
    (void)state;
    assert_true(launch_end_together(&launch)); // with one node
    connect_node();
    launch.others = memory_zalloc(3 * sizeof *launch.others);
    launch.attempt = 4;
    launch.cause = CAUSE_DEATH; // published already
    put("end_4", "failed node 0: rank 1 died");
    rig.on_wait = others_end;
    assert_true(launch_end_together(&launch));
    assert_int_equal(rig.rounds, 2);
    assert_int_equal(launch.cause, CAUSE_DEATH);
    assert_false(launch.no_restart);
    put("ended_4", "0");
    options.grace_s = -60; // the timeout is the grace plus a minute
    rig.rounds = 0;
    rig.on_wait = other_node_ends;
    assert_false(launch_end_together(&launch));
    assert_int_equal(rig.rounds, 1);
    options.grace_s = 5;
    rig.on_wait = other_node_says_stop;
    rig.rounds = 0;
    assert_false(launch_end_together(&launch));
    assert_true(launch.no_restart);
    assert_int_equal(rig.rounds, 2);
    says("");
}

static void signal_late(int round) {
    if (round == 5) rig.signal = SIGINT;
}

static void others_are_done(int round) {
    add("done_4", round <= 2);
}

static void await_nodes(void (*on_wait)(int), LaunchCause cause, const char *lines) {
    put("done_4", "0");
    rig.on_wait = on_wait;
    rig.rounds = 0;
    launch.cause = CAUSE_NONE;
    launch_await_nodes(&launch);
    assert_int_equal(launch.cause, cause);
    says(lines);
}

static void test_await_nodes(void **state) {
    (void)state;
    launch_await_nodes(&launch); // with one node: returns at once
    assert_int_equal(launch.cause, CAUSE_NONE);
    connect_node();
    launch.others = memory_zalloc(3 * sizeof *launch.others);
    launch.attempt = 4;
    await_nodes(others_are_done, CAUSE_NONE, "");
    assert_int_equal(rig.rounds, 2);
    await_nodes(signal_comes, CAUSE_SIGNAL, "");
    holds("end_4", "stop node 0: its ddprun received a signal");
    put("end_4", "");
    await_nodes(other_node_ends, CAUSE_NODES, "ddprun: node 1: rank 3 died\n");
    put("end_4", "");
    launch.no_restart = false;
    options.exit_timeout_s = 0.02;
    await_nodes(NULL, CAUSE_NODES, "ddprun: not all nodes ended in time\n");
    holds("end_4", "stop node 0: not all nodes ended in time");
    options.exit_timeout_s = 300; // a node falls silent before it
    put("end_4", "");
    launch.others[2] = (OtherNode){0, ago(11)};
    await_nodes(signal_late, CAUSE_NODES,
                "ddprun: the ddprun of node 2 has been silent for 10 s\n");
    holds("end_4", "failed node 0: the ddprun of node 2 has been silent for 10 s");
}

static void others_part(int round) {
    add("parted_-1", round <= 2);
}

// Node 0 waits for nodes that joined and for nodes that it refused.
static void test_drain(void **state) {
    (void)state;
    connect_node();
    add("there_-1", 2);
    add("refused_-1", 1);
    rig.on_wait = others_part;
    launch_drain_nodes(&launch);
    assert_int_equal(rig.rounds, 2);
    holds("parted_-1", "3");
    put("parted_-1", "0");
    options.node = 1; // does not wait for other nodes
    launch_drain_nodes(&launch);
    assert_int_equal(rig.rounds, 2);
    holds("parted_-1", "1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        NODE(test_keys),
        NODE(test_beats),
        NODE(test_silence_of_nodes),
        NODE(test_ends_are_published_once),
        NODE(test_patience),
        NODE(test_poll_sees_an_end),
        NODE(test_poll_sees_silence),
        NODE(test_check_ends_the_ranks),
        NODE(test_all_meet),
        NODE(test_store_is_awaited),
        NODE(test_store_is_not_awaited),
        NODE(test_a_node_is_missing),
        NODE(test_two_nodes_are_missing),
        NODE(test_meeting_is_ended),
        NODE(test_nodes_disagree),
        NODE(test_end_together),
        NODE(test_await_nodes),
        NODE(test_drain),
    };
    return cmocka_run_group_tests(tests, make_screen, free_screen);
}
