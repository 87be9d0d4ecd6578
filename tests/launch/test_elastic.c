/* test_elastic.c: elastic nodes (ddp/launch/elastic.h): node 0's decisions from the other nodes'
 * keys, and a node's reactions to node 0's keys. This test writes the other nodes' keys.
 */
#include "tests/rigs/node_rig.h"

#include "common/base/format.h"

// ---- Node 0: its members ----------------------------------------------------------------------

// Node 0 of a job of 2 to 3 nodes, in generation 4; `members` nodes have joined, node 0 included.
static void lead_begin(int members) {
    Elastic *e = memory_zalloc(sizeof *e);
    char count[20];
    options.min_nodes = 2;
    launch.elastic = e;
    launch.attempt = 4;
    launch.nodes = 2;
    connect_node();
    snprintf(count, sizeof count, "%d", members - 1);
    put("members_0", count);
}

// Writes the key of member `number`. ready: 4 or less: in generation 4; 5: has ended it and is
// ready for 5.
static void write_member(int number, int beats, int ready, const char *name) {
    char key[32], text[200];
    snprintf(key, sizeof key, "member_%d", number);
    snprintf(text, sizeof text, "%d %d %s", beats, ready, name);
    put(key, text);
}

static void includes(int number, bool included) {
    launch.elastic->members[number].generation = included ? 4 : -1;
}

static void checks(LaunchEnd end, const char *wanted) {
    char text[NODES_TEXT_MAX] = "";
    assert_int_equal(elastic_check(&launch, text), end);
    assert_string_equal(text, wanted);
}

static void test_members(void **state) {
    (void)state;
    char text[NODES_TEXT_MAX], name[150];
    lead_begin(1);
    Elastic *e = launch.elastic;
    assert_int_equal(elastic_check(&launch, text), END_NONE);
    assert_int_equal(e->count, 1);
    assert_int_equal(e->members[0].ready_for, MEMBER_LEFT); // no key yet
    assert_int_equal(e->members[0].generation, -1);
    assert_true(clock_seconds_since(e->refreshed_ns) < 20);
    put("members_0", "2");
    write_member(1, 3, 0, "one pid 1");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    write_member(2, 1, 5, name);
    (void)elastic_check(&launch, text);
    assert_int_equal(e->count, 3);
    assert_int_equal(e->members[1].beats, 3);
    assert_int_equal(e->members[1].ready_for, 0);
    assert_string_equal(e->members[1].name, "one pid 1");
    assert_int_equal(e->members[2].ready_for, 5);
    assert_int_equal(strlen(e->members[2].name), MEMBER_NAME_MAX);
    put("member_2", "7 6"); // without a name
    put("member_1", "4");   // malformed: ignored
    (void)elastic_check(&launch, text);
    assert_int_equal(e->members[2].beats, 7);
    assert_string_equal(e->members[2].name, "");
    assert_int_equal(e->members[1].beats, 3);
    write_member(1, 4, MEMBER_LEFT, "one pid 1");
    (void)elastic_check(&launch, text);
    assert_int_equal(e->members[1].ready_for, MEMBER_LEFT);
    write_member(1, 5, 9, "one pid 1"); // ignored: the member has left
    (void)elastic_check(&launch, text);
    assert_int_equal(e->members[1].ready_for, MEMBER_LEFT);
}

// A changed beat resets the member's timer; if node 0 itself was suspended, all timers are reset.
static void test_hearing(void **state) {
    (void)state;
    char text[NODES_TEXT_MAX];
    lead_begin(3);
    for (int m = 0; m < 3; m++) write_member(m, 3, 0, "a node");
    (void)elastic_check(&launch, text);
    Elastic *e = launch.elastic;
    for (int i = 0; i < 3; i++) {
        for (int m = 0; m < 3; m++) e->members[m].heard_ns = ago(9);
        write_member(1, 4 + i, 0, "a node");
        if (i == 1) e->refreshed_ns = ago(3);
        if (i == 2) e->refreshed_ns = ago(6);
        (void)elastic_check(&launch, text);
        for (int m = 0; m < 3; m++)
            assert_int_equal(clock_seconds_since(e->members[m].heard_ns) < 8, m == 1 || i == 2);
    }
}

static void test_a_member_is_lost(void **state) {
    (void)state;
    char text[NODES_TEXT_MAX];
    lead_begin(3);
    for (int m = 0; m < 3; m++) write_member(m, 3, 4, m == 1 ? "venus pid 1" : "earth pid 2");
    (void)elastic_check(&launch, text);
    for (int m = 0; m < 2; m++) includes(m, true);
    write_member(2, 3, MEMBER_LEFT, "earth pid 2");
    launch.elastic->members[2].heard_ns = ago(99); // not in the generation: may be silent
    checks(END_NONE, "");
    launch.elastic->members[1].heard_ns = ago(8);
    checks(END_NONE, "");
    launch.elastic->members[1].heard_ns = ago(11);
    checks(END_CHANGED, "the ddprun on venus pid 1 has been silent for 10 s");
    write_member(1, 4, MEMBER_LEFT, "venus pid 1");
    checks(END_CHANGED, "venus pid 1 has left");
    add("done_4", 1); // one of two nodes has ended
    checks(END_CHANGED, "venus pid 1 has left");
    add("done_4", 1);
    checks(END_NONE, "");
}

static void test_a_node_asks(void **state) {
    (void)state;
    char text[NODES_TEXT_MAX];
    lead_begin(3);
    for (int m = 0; m < 3; m++) write_member(m, 3, m < 2 ? 4 : 0, m == 2 ? "mars pid 3" : "other");
    (void)elastic_check(&launch, text);
    for (int m = 0; m < 2; m++) includes(m, true);
    add_ghost();
    checks(END_CHANGED, "mars pid 3 asks to join");
    launch.alive = LOCAL_RANKS - 1; // ranks have begun to exit
    checks(END_NONE, "");
    launch.alive = LOCAL_RANKS;
    launch.first_good_end_ns = 1;
    checks(END_NONE, "");
    launch.first_good_end_ns = 0;
    launch.elastic->members[2].heard_ns = ago(11);
    checks(END_NONE, "");
    launch.elastic->members[2].heard_ns = clock_ns();
    options.nodes = 2; // the generation is full
    checks(END_NONE, "");
    options.nodes = 3;
    launch.elastic->members[2].generation = 2; // was in an earlier generation
    checks(END_NONE, "");
    write_member(2, 4, 3, "mars pid 3");
    checks(END_CHANGED, "mars pid 3 asks to join");
    launch.attempt = 0; // in the first generation
    for (int m = 0; m < 3; m++) launch.elastic->members[m].generation = 0;
    options.nodes = 2;
    launch.elastic->members[1].heard_ns = ago(99);
    checks(END_CHANGED, "the ddprun on other has been silent for 10 s");
    options.nodes = 3;
    launch.attempt = -1; // before the first generation: no member is in it
    for (int m = 0; m < 3; m++) includes(m, false), launch.elastic->members[m].generation = -1;
    launch.elastic->members[0].heard_ns = ago(99);
    checks(END_CHANGED, "mars pid 3 asks to join");
}

static void test_attended(void **state) {
    (void)state;
    lead_begin(1);
    write_member(0, 1, 0, "node 0");
    assert_false(elastic_is_attended(&launch)); // node 0 does not count
    add_ghost();
    assert_false(elastic_is_attended(&launch));
    put("members_0", "2");
    assert_false(elastic_is_attended(&launch));
    write_member(2, 1, 0, "two");
    assert_true(elastic_is_attended(&launch));
    launch.elastic->members[2].heard_ns = ago(11);
    assert_false(elastic_is_attended(&launch));
    write_member(1, 1, 0, "one");
    assert_true(elastic_is_attended(&launch));
    write_member(1, 2, MEMBER_LEFT, "one");
    assert_false(elastic_is_attended(&launch));
}

// ---- Node 0: the next generation --------------------------------------------------------------

static Patience patience;

// All `members` have written keys. Bit m of `in`: member m is in generation 4; of `ready`: it is
// ready for 5.
static void gather(int members, unsigned in, unsigned ready) {
    char text[NODES_TEXT_MAX], name[20];
    lead_begin(members);
    options.last_call_s = 30;
    patience = patience_begin(300);
    for (int m = 0; m < members; m++) {
        snprintf(name, sizeof name, "n%d", m);
        write_member(m, 1, ready >> m & 1 ? 5 : 4, name);
    }
    (void)elastic_check(&launch, text);
    for (int m = 0; m < members; m++)
        if (in >> m & 1) includes(m, true);
    add_ghost();
    for (int m = 0; m < members; m++) // members in no generation that are not ready have left
        if (!(in >> m & 1) && !(ready >> m & 1)) write_member(m, 2, MEMBER_LEFT, "gone");
}

// Runs elastic_lead after the time of the last call has passed.
static void last_call_passes(void) {
    assert_true(launch.elastic->last_call_ns > 0);
    launch.elastic->last_call_ns = 1;
    elastic_lead(&launch, &patience);
}

static void test_all_continue(void **state) {
    (void)state;
    gather(2, 3, 2);
    elastic_lead(&launch, &patience); // node 0 is not ready
    holds("place_1", "");
    write_member(0, 2, 5, "n0");
    elastic_lead(&launch, &patience); // waits for a possible third node
    holds("place_1", "");
    assert_true(launch.elastic->last_call_ns > clock_ns_after(9));
    const uint64_t call = launch.elastic->last_call_ns;
    elastic_lead(&launch, &patience);
    assert_int_equal(launch.elastic->last_call_ns, call);
    last_call_passes();
    holds("place_0", "5 0 2 generation 5: 2 nodes, 4 ranks");
    holds("place_1", "5 1 2 generation 5: 2 nodes, 4 ranks");
    assert_int_equal(launch.elastic->last_call_ns, 0);
    for (int m = 0; m < 2; m++) assert_int_equal(launch.elastic->members[m].generation, 5);
    assert_int_equal(launch.elastic->restarts, 0);
    says("");
}

// A member that still runs is waited for, even if enough others are ready.
static void test_one_is_missing(void **state) {
    (void)state;
    gather(4, 7, 8 | 4 | 2);
    elastic_lead(&launch, &patience);
    holds("place_1", "");
    write_member(0, 2, 5, "n0");
    elastic_lead(&launch, &patience);
    holds("place_1", "5 1 3 generation 5: 3 nodes, 6 ranks");
}

// Long lists of names are cut to a third of the text.
static void test_long_names(void **state) {
    (void)state;
    char names[2][NODES_TEXT_MAX / 3] = {"; left: ", "; came: "};
    char name[MEMBER_NAME_MAX + 1] = "", wanted[NODES_TEXT_MAX];
    gather(11, 1 | 62, 1 | 1984);
    options.nodes = 6;
    memset(name, 'n', MEMBER_NAME_MAX);
    for (int m = 1; m < 11; m++) {
        write_member(m, 2, m < 6 ? MEMBER_LEFT : 5, name);
        format_append(names[m > 5], sizeof names[0], "%s%s", m % 5 == 1 ? "" : ", ", name);
    }
    elastic_lead(&launch, &patience);
    snprintf(wanted, sizeof wanted, "5 0 6 generation 5: 6 nodes, 12 ranks%s%s", names[0],
             names[1]);
    holds("place_0", wanted);
}

// Members of the previous generation come first, then others while there is room.
static void test_order_and_room(void **state) {
    (void)state;
    gather(5, 1 | 4, 31);
    elastic_lead(&launch, &patience); // the maximum is ready: no waiting
    holds("place_0", "5 0 3 generation 5: 3 nodes, 6 ranks; came: n1");
    holds("place_2", "5 1 3 generation 5: 3 nodes, 6 ranks; came: n1");
    holds("place_1", "5 2 3 generation 5: 3 nodes, 6 ranks; came: n1");
    holds("place_3", "");
    holds("place_4", "");
}

static void test_come_and_left(void **state) {
    (void)state;
    gather(5, 1 | 2 | 4, 1 | 8 | 16);
    write_member(1, 2, MEMBER_LEFT, "n1");
    launch.elastic->members[2].heard_ns = ago(11);
    elastic_lead(&launch, &patience);
    holds("place_0", "5 0 3 generation 5: 3 nodes, 6 ranks; left: n1, n2 (lost); came: n3, n4");
    holds("place_4", "5 2 3 generation 5: 3 nodes, 6 ranks; left: n1, n2 (lost); came: n3, n4");
    holds("over", "");
}

static void test_one_node_one_rank(void **state) {
    (void)state;
    gather(1, 1, 1);
    options.min_nodes = options.local_ranks = 1;
    options.nodes = 2;
    elastic_lead(&launch, &patience);
    last_call_passes();
    holds("place_0", "5 0 1 generation 5: 1 node, 1 rank");
}

static void test_too_few(void **state) {
    (void)state;
    char text[400];
    gather(2, 3, 1);
    write_member(1, 2, MEMBER_LEFT, "n1");
    launch.elastic->last_call_ns = 7; // of a node that is no longer ready
    elastic_lead(&launch, &patience);
    assert_int_equal(launch.elastic->last_call_ns, 0);
    patience.next_line_ns = 1;
    patience.begin_ns = ago(3);
    elastic_lead(&launch, &patience);
    says_waiting("1 more node (1 of at least 2 ready)", " s of at most 300 s (--start-timeout)\n");
    options.min_nodes = 3;
    patience.next_line_ns = 1;
    elastic_lead(&launch, &patience);
    says_waiting("2 more nodes (1 of at least 3 ready)", " s of at most 300 s (--start-timeout)\n");
    options.min_nodes = 2;
    holds("over", "");
    patience.begin_ns = ago(301);
    elastic_lead(&launch, &patience);
    snprintf(text, sizeof text,
             "failed only 1 node is ready, --nnodes 2:3 needs 2, and no other came within 300 s: "
             "start ddprun on another node with --node-rank 1, --master-port %d and the same "
             "options and DDPRUN_TOKEN",
             launch.port);
    holds("over", text);
    put("over", "");
    write_member(0, 2, 4, "n0");
    launch.elastic->members[0].heard_ns = ago(11); // no member is left
    launch.elastic->members[0].beats = 2;
    elastic_lead(&launch, &patience);
    char over[NODES_TEXT_MAX];
    assert_non_null(strstr(nodes_claim(&launch, "over", NULL, over), "only 0 nodes are ready, "));
}

// A generation after a failed rank counts as a restart if no node was lost.
static void test_restarts(void **state) {
    (void)state;
    gather(2, 3, 3);
    options.nodes = 2;
    put("end_4", "failed node 1: rank 3 died");
    elastic_lead(&launch, &patience);
    says("ddprun: restarting all ranks (restart 1 of 1)\n");
    assert_int_equal(launch.elastic->restarts, 1);
    holds("place_1", "5 1 2 generation 5: 2 nodes, 4 ranks");
    includes(0, true), includes(1, true);
    elastic_lead(&launch, &patience);
    holds("over", "failed a rank failed, and no restart of --max-restarts 1 is left");
    assert_int_equal(launch.elastic->restarts, 1);
    // After the loss of a node it does not count.
    end(NULL), begin(NULL);
    gather(3, 7, 3);
    write_member(2, 2, MEMBER_LEFT, "n2");
    options.max_restarts = 0;
    put("end_4", "failed node 1: rank 3 died");
    elastic_lead(&launch, &patience);
    last_call_passes();
    says("");
    assert_int_equal(launch.elastic->restarts, 0);
    holds("place_1", "5 1 2 generation 5: 2 nodes, 4 ranks; left: n2");
    holds("over", "");
}

// ---- A node that joins ------------------------------------------------------------------------

static void node_begin(void) {
    options.min_nodes = 2;
    options.node = 1;
    launch.attempt = -1;
    put("members_0", "3");
}

static void place_comes(int round) {
    holds("members_0", "4");
    if (round == 1) put("place_4", "0 2");
    if (round == 2) put("place_4", "0 2 3 generation 0: 3 nodes");
}

static void test_join(void **state) {
    (void)state;
    Error err = {0};
    char mine[200];
    node_begin();
    rig.on_wait = place_comes;
    CHECK_OK(launch_rendezvous_nodes(&launch, &err) == 0, err);
    assert_int_equal(rig.rounds, 2);
    assert_int_equal(launch.attempt, 0);
    assert_int_equal(launch.node, 2);
    assert_int_equal(launch.nodes, 3);
    assert_int_equal(launch.elastic->member, 4);
    says("ddprun: generation 0: 3 nodes; this is node 2\n");
    snprintf(mine, sizeof mine, "%lld 0 mars pid %d", launch.elastic->beats, (int)getpid());
    holds("member_4", mine);
    assert_true(launch.elastic->beats >= 2);
    holds("size", "--nnodes 2:3 --nproc-per-node 2 at node 1");
    assert_int_equal(elastic_beat(&launch), 0);
    launch.elastic->member = -1;
    assert_int_equal(elastic_beat(&launch), -1);
}

static void test_join_is_refused(void **state) {
    (void)state;
    Error err = {0};
    node_begin();
    put("size", "--nnodes 1:3 --nproc-per-node 2 at node 0");
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    assert_int_equal(launch.elastic->member, -1);
    assert_int_equal(launch.elastic->ready_for, MEMBER_LEFT);
    holds("members_0", "3");
    end(NULL), begin(NULL);
    node_begin();
    put("members_0", "many");
    err = (Error){0};
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), -1);
    check_message(&err, "key 'launcher/members_0'");
    end(NULL), begin(NULL);
    node_begin();
    options.node = 0; // was started as node 0
    options.min_nodes = 1;
    options.nodes = 2;
    options.last_call_s = 0;
    put("members_0", "0");
    err = (Error){0};
    CHECK_OK(launch_rendezvous_nodes(&launch, &err) == 0, err);
    assert_int_equal(launch.elastic->member, 0);
    holds("members_0", "0");
    char place[200];
    snprintf(place, sizeof place, "0 0 1 generation 0: 1 node, 2 ranks; came: mars pid %d",
             (int)getpid());
    holds("place_0", place);
}

static void signal_comes(int round) {
    if (round == 2) rig.signal = SIGHUP;
}

static void test_signal_while_waiting(void **state) {
    (void)state;
    Error err = {0};
    node_begin();
    rig.on_wait = signal_comes;
    assert_int_equal(launch_rendezvous_nodes(&launch, &err), SIGHUP);
    assert_int_equal(rig.rounds, 2);
}

// ---- A node: after a generation ---------------------------------------------------------------

static void member_begin(void) {
    node_begin();
    connect_node();
    launch.attempt = 4;
    launch.alive = 0;
    launch.cause = CAUSE_NODES;
    launch.elastic = memory_zalloc(sizeof *launch.elastic);
    *launch.elastic = (Elastic){.member = 2, .beats = 10, .name = "mars pid 1"};
}

static void old_places_come(int round) {
    if (round == 1) put("place_2", "4 1 3 generation 4");
    if (round == 2) put("end_5", "failed node 0: it is over");
    if (round == 2) put("place_2", "5 1 3 generation 5"); // read after generation 5 has ended
    if (round == 4) put("place_2", "6 2 7 generation 6");
}

static void test_next_place(void **state) {
    (void)state;
    Error err = {0};
    member_begin();
    rig.on_wait = old_places_come;
    assert_true(elastic_next(&launch, &err));
    assert_int_equal(rig.rounds, 4);
    assert_int_equal(launch.attempt, 6);
    assert_int_equal(launch.node, 2);
    assert_int_equal(launch.nodes, 7);
    assert_int_equal(launch.cause, CAUSE_NODES);
    assert_int_equal(launch.elastic->ready_for, 6);
    says("ddprun: generation 6; this is node 2\n");
}

static void test_no_next(void **state) {
    (void)state;
    Error err = {0};
    member_begin();
    for (int i = 0; i < 5; i++) {
        launch.cause = i == 0 ? CAUSE_NONE : i == 1 ? CAUSE_SIGNAL : CAUSE_DEATH;
        launch.caught = i == 2 ? SIGTERM : 0;
        launch.no_restart = i == 3;
        launch.alive = i == 4;
        assert_false(elastic_next(&launch, &err));
        assert_int_equal(launch.elastic->beats, 10); // has not announced itself as ready
    }
}

static void job_is_over(int round) {
    if (round == 2) put("over", "ok the job has ended");
}

static void job_has_failed(int round) {
    if (round == 2) put("over", "failed too few nodes");
}

static void server_ends(int round) {
    if (round != 2) return;
    store_server_close(launch.server);
    launch.server = NULL;
}

static void test_the_job_ends(void **state) {
    (void)state;
    static const struct {
        void (*on_wait)(int);
        LaunchCause before, after;
        const char *error, *lines;
    } cases[] = {
        {job_is_over, CAUSE_DEATH, CAUSE_NONE, "", "ddprun: the job has ended\n"},
        {job_has_failed, CAUSE_NODES, CAUSE_NODES, "too few nodes", ""},
        {job_has_failed, CAUSE_DEATH, CAUSE_DEATH, "", "ddprun: too few nodes\n"},
        {signal_comes, CAUSE_DEATH, CAUSE_SIGNAL, "", ""},
        {server_ends, CAUSE_NODES, CAUSE_NODES, "the ddprun of node 0 is gone, and with it the",
         ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        if (i > 0) end(NULL), begin(NULL);
        member_begin();
        rig.on_wait = cases[i].on_wait;
        launch.cause = cases[i].before;
        assert_false(elastic_next(&launch, &err));
        assert_int_equal(launch.cause, cases[i].after);
        if (*cases[i].error)
            assert_memory_equal(err.message, cases[i].error, strlen(cases[i].error));
        else
            assert_int_equal(err.status, 0);
        says(cases[i].lines);
    }
}

// Only a node that has never had a place prints the reason of its wait.
static void waits_long(int round) {
    if (round == 3) put("over", "ok done");
}

static void test_waiting_is_said(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        Error err = {0};
        if (first > 0) end(NULL), begin(NULL);
        member_begin();
        options.start_timeout_s = 1e-6;
        rig.on_wait = waits_long;
        launch.attempt = first ? -1 : 4;
        assert_false(elastic_next(&launch, &err));
        output_pump(launch.output);
        const bool said = strstr(screen.text[2], "waiting for a place in the next generation: ");
        assert_int_equal(said, first);
    }
}

static void others_leave(int round) {
    if (round == 2) write_member(1, 9, MEMBER_LEFT, "one");
}

static void test_part(void **state) {
    (void)state;
    member_begin();
    elastic_part(&launch); // does not wait for other nodes
    holds("member_2", "11 -1 mars pid 1");
    holds("over", "");
    for (int i = 0; i < 5; i++) {
        end(NULL), begin(NULL);
        lead_begin(2);
        strcpy(launch.elastic->name, "n0");
        write_member(1, 3, 4, "one");
        rig.on_wait = others_leave;
        launch.cause = i == 1 ? CAUSE_DEATH : CAUSE_NONE;
        launch.caught = i == 2 ? SIGINT : 0;
        if (i >= 3) launch.attempt = i == 3 ? -1 : 0;
        launch_drain_nodes(&launch);
        assert_int_equal(rig.rounds, 2);
        holds("member_0", "1 -1 n0");
        holds("over", i % 4 == 0 ? "ok the job has ended"
                                 : "failed the ddprun of node 0 has ended the job");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        NODE(test_members),
        NODE(test_hearing),
        NODE(test_a_member_is_lost),
        NODE(test_a_node_asks),
        NODE(test_attended),
        NODE(test_all_continue),
        NODE(test_one_is_missing),
        NODE(test_long_names),
        NODE(test_order_and_room),
        NODE(test_come_and_left),
        NODE(test_one_node_one_rank),
        NODE(test_too_few),
        NODE(test_restarts),
        NODE(test_join),
        NODE(test_join_is_refused),
        NODE(test_signal_while_waiting),
        NODE(test_next_place),
        NODE(test_no_next),
        NODE(test_the_job_ends),
        NODE(test_waiting_is_said),
        NODE(test_part),
    };
    return cmocka_run_group_tests(tests, make_screen, free_screen);
}
