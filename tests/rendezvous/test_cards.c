/* test_cards.c: unexpected contents of the store during a rendezvous: cards of ranks that cannot
 * join, keys that exist already, invalid plans, a missing rank 0.
 */
#include "tests/rigs/meeting_ranks.h"

#include "ddp/group/backends.h"

// A card that another process writes as rank 1. NULL fields: as this process would write them.
typedef struct ForgedCard {
    const char *world, *host, *boot, *pid_namespace, *backend, *settings;
    const char *says[2]; // parts of rank 0's error
} ForgedCard;

static void leave_card(const ForgedCard *card, int port) {
    char host[72] = "", boot[64] = "", space[64] = "", text[600];
    Error err = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    gethostname(host, sizeof host - 1);
    if (!file || !fgets(boot, sizeof boot, file)) _exit(1);
    if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) _exit(1);
    boot[strcspn(boot, "\n")] = '\0';
    snprintf(text, sizeof text, "%s %s %s %s 4711 1 %s -\n%s", card->world ? card->world : "2",
             card->host ? card->host : host, card->boot ? card->boot : boot,
             card->pid_namespace ? card->pid_namespace : space,
             card->backend ? card->backend : "shm", card->settings ? card->settings : "lr 1\n");
    if (card->world && !*card->world) strcpy(text, "a card without a line of settings");
    Store *store = store_connect("127.0.0.1", port, "", LONG_S, &err);
    if (!store) _exit(2);
    store_set_prefix(store, "attempt_0");
    _exit(store_set(store, "rank/1", text, strlen(text), &err) == 0 ? 0 : 3);
}

// Rank 0's error for each way in which rank 1 may not fit.
static void test_cards(void **state) {
    (void)state;
    static const ForgedCard cards[] = {
        {.world = "3", .says = {"WORLD_SIZE is 2 at rank 0 and 3 at rank 1", ""}},
        {.world = "many", .says = {"rank 1 left 'many ", " as its card"}},
        {.world = "", .says = {"rank 1 left 'a card without a line of settings' as its card", ""}},
        {.host = "elsewhere",
         .says = {"all ranks in one system: rank 0 is on ", "rank 1 on elsewhere: use --backend"}},
        {.boot = "another-boot", .says = {"rank 0 is on ", " in another container: use"}},
        {.pid_namespace = "pid:[1]", .says = {"rank 0 is on ", " in another container: use"}},
        {.backend = "gloo", .says = {"the backend is shm at rank 0 and gloo at rank 1", ""}},
        {.settings = "lr 2\n", .says = {"lr is 1 at rank 0 and 2 at rank 1", "the same options"}},
    };
    enum { CARDS = sizeof cards / sizeof *cards };
    Rendezvous ranks[CARDS]; // each is rank 0 of its own job
    Outcome outcomes[CARDS];
    pid_t others[CARDS];
    const int port = free_port();
    fflush(NULL);
    for (int i = 0; i < CARDS; i++) {
        ranks[i] = place(0, 2, port + i);
        snprintf(ranks[i].alike, sizeof ranks[i].alike, "lr 1\n");
        others[i] = fork();
        if (others[i] == 0) leave_card(&cards[i], port + i);
    }
    run_ranks(ranks, CARDS, LONG_S, outcomes);
    for (int i = 0; i < CARDS; i++) {
        int status = 0;
        assert_int_equal(waitpid(others[i], &status, 0), others[i]);
        assert_int_equal(status, 0);
        for (int k = 0; k < 2; k++) assert_outcome(&outcomes[i], cards[i].says[k]);
        const int failed = i == 1 || i == 2 ? STATUS_FAILED : STATUS_USAGE;
        assert_int_equal(outcomes[i].status, failed);
    }
}

// A key that a rank must write exists already: its card, or the plan.
static void test_keys_are_taken(void **state) {
    (void)state;
    static const char *const keys[] = {"rank/0", "plan"};
    static char text[20000];
    memset(text, 'a', sizeof text);
    for (int i = 0; i < 2; i++) {
        int port = 0;
        Error err = {0};
        Outcome outcome;
        pid_t server = start_server(&port);
        Store *store = store_connect("127.0.0.1", port, "secret", LONG_S, &err);
        assert_non_null(store);
        store_set_prefix(store, "attempt_0");
        assert_int_equal(store_set(store, keys[i], text, sizeof text, &err), 0);
        store_close(store);
        Rendezvous rank = place(0, 1, port);
        rank.launcher_store = true;
        snprintf(rank.token, sizeof rank.token, "secret");
        run_ranks(&rank, 1, LONG_S, &outcome);
        assert_outcome(&outcome, keys[i]);
        assert_outcome(&outcome, "holds 20000 bytes, room is for ");
        end_server(server);
    }
}

// Rank 0 is missing, although a launcher's store is running: the timeout is extended by a second,
// in which rank 0 could have published an error.
static void test_rank_0_is_missing(void **state) {
    (void)state;
    int port = 0;
    double seconds = 0;
    Outcome outcome;
    pid_t server = start_server(&port);
    Rendezvous rank = place(1, 2, port);
    rank.launcher_store = true;
    snprintf(rank.token, sizeof rank.token, "secret");
    run_ranks(&rank, 1, 0.3, &outcome);
    assert_outcome(&outcome, "waiting for rank 0: ");
    const char *after = strstr(outcome.message, "timed out after ");
    assert_non_null(after);
    assert_int_equal(sscanf(after, "timed out after %lf s", &seconds), 1);
    assert_true(seconds >= 1 && seconds <= 1.3);
    end_server(server);
}

// Runs one rank of a world of two, which finds this plan.
static void find_plan(const char *plan, int rank_number, Outcome *outcome) {
    int port = 0;
    Error err = {0};
    pid_t server = start_server(&port);
    Store *store = store_connect("127.0.0.1", port, "secret", LONG_S, &err);
    assert_non_null(store);
    store_set_prefix(store, "attempt_0");
    assert_int_equal(store_set(store, "plan", plan, strlen(plan), &err), 0);
    store_close(store);
    Rendezvous rank = place(rank_number, 2, port);
    rank.launcher_store = true;
    snprintf(rank.token, sizeof rank.token, "secret");
    run_ranks(&rank, 1, LONG_S, outcome);
    end_server(server);
}

// Rank 0, waiting for the others' cards, gets the error of a rank that gave up.
static void test_a_rank_has_given_up(void **state) {
    (void)state;
    Outcome outcome;
    find_plan("error it broke", 0, &outcome);
    assert_outcome(&outcome, "it broke");
    assert_int_equal(outcome.status, STATUS_FAILED);
}

// Plans that are invalid, too long, or an error of either kind.
static void test_strange_plans(void **state) {
    (void)state;
    char longer[PG_ADDRESS_MAX + 4] = "ok ", fits[PG_ADDRESS_MAX + 3] = "ok ";
    memset(longer + 3, 'a', PG_ADDRESS_MAX);
    memset(fits + 3, 'a', PG_ADDRESS_MAX - 1);
    const struct {
        const char *plan, *says;
        int status;
    } cases[] = {
        {"hello", "rank 0 published something else: 'hello'", STATUS_FAILED},
        {"ok", "rank 0 published something else: 'ok'", STATUS_FAILED},
        {longer, "rank 0 published something else: 'ok aaaa", STATUS_FAILED},
        {fits, "", STATUS_FAILED}, // not an address of shm
        {"error it broke", "it broke", STATUS_FAILED},
        {"usage it was wrong", "it was wrong", STATUS_USAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Outcome outcome;
        find_plan(cases[i].plan, 1, &outcome);
        assert_outcome(&outcome, cases[i].says);
        assert_ptr_equal(strstr(outcome.message, cases[i].says), outcome.message); // the prefix
        assert_int_equal(strstr(outcome.message, "published") != NULL, i < 3);
        assert_int_equal(outcome.status, cases[i].status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cards),
        cmocka_unit_test(test_keys_are_taken),
        cmocka_unit_test(test_rank_0_is_missing),
        cmocka_unit_test(test_a_rank_has_given_up),
        cmocka_unit_test(test_strange_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
