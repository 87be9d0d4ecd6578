/* test_pg_nccl_address.c: the part of NCCL's rendezvous that needs no GPU: rank 0 creates an
 * address (NCCL's unique id) and publishes it in the store, the other ranks read the same address.
 * A build without NCCL returns an error, and the rest is skipped.
 */
#include "tests/rigs/store_rig.h"

#include "ddp/group/backends.h"
#include "ddp/rendezvous/init.h"

enum { RANKS = 4 };

static void ranks_read_the_address_that_rank_0_made(void **state) {
    Served *served = *state;
    Error err = {0};
    PgEndpoint first = {0}, second = {0};
    CHECK_OK(pg_opener_nccl.create(&first, &err) == 0, err);
    CHECK_OK(pg_opener_nccl.create(&second, &err) == 0, err);
    const char *address = first.address, *other = second.address;
    assert_int_equal(strlen(address), PG_ADDRESS_MAX - 1); // 128 bytes, two digits each
    assert_int_equal(strspn(address, "0123456789abcdef"), PG_ADDRESS_MAX - 1);
    assert_string_not_equal(address, other); // each group has its own
    CHECK_OK(store_set(served->store, "nccl", address, strlen(address), &err) == 0, err);
    for (int rank = 1; rank < RANKS; rank++) {
        char found[PG_ADDRESS_MAX] = "";
        size_t bytes = sizeof found - 1;
        Store *store = new_client(served->port);
        CHECK_OK(store_get(store, "nccl", found, &bytes, &err) == 0, err);
        assert_string_equal(found, address);
        store_close(store);
    }
}

static void a_cpu_has_no_place_in_it(void **state) {
    (void)state;
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    const Rendezvous alone = {.world_size = 1, .local_world_size = 1};
    assert_null(init_process_group("nccl", &alone, device, 5, &err));
    assert_int_equal(err.status, STATUS_USAGE);
    assert_non_null(strstr(err.message, "use --device cuda, not cpu:0"));
    device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ranks_read_the_address_that_rank_0_made, set_up, tear_down),
        cmocka_unit_test(a_cpu_has_no_place_in_it),
    };
    if (!pg_opener_nccl.built) {
        Error err = {0};
        bool refused = !pg_backend_find("nccl", NULL, &err) && err.status == STATUS_SKIPPED;
        printf("skipped: %s\n", err.message);
        return refused ? STATUS_SKIPPED : STATUS_FAILED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
