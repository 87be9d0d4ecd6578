/* test_rendezvous_parts.c: parts of the rendezvous that need no other rank: the host's own address,
 * the heartbeat page, the comparison of settings.
 */
#include "tests/rigs/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ddp/rendezvous/heartbeat.h"
#include "ddp/rendezvous/init.h"
#include "ddp/rendezvous/rendezvous_internal.h"

// ---- This host's address --------------------------------------------------------------------

enum { UP = IFF_UP | IFF_RUNNING, INTERFACES = 7 };

// Interfaces of a simulated host; `good` is the first one that reaches other hosts.
typedef struct Interface {
    const char *address; // NULL: without an address
    int family;
    unsigned flags;
} Interface;

static const Interface INTERFACE[INTERFACES] = {
    {NULL, 0, UP},
    {"127.0.0.1", AF_INET, UP | IFF_LOOPBACK},
    {"10.9.9.1", AF_INET, IFF_UP},
    {"10.9.9.2", AF_INET, IFF_RUNNING},
    {"10.9.9.3", AF_INET6, UP}, // not read: another family
    {"10.9.9.4", AF_INET, UP},  // good
    {"10.9.9.5", AF_INET, UP},
};

static int visible, freed; // interfaces; -1: getifaddrs fails
static struct ifaddrs interfaces[INTERFACES];
static struct sockaddr_in addresses[INTERFACES];

int __wrap_getifaddrs(struct ifaddrs **list);
void __wrap_freeifaddrs(struct ifaddrs *list);

int __wrap_getifaddrs(struct ifaddrs **list) {
    errno = ENOBUFS;
    if (visible < 0) return -1;
    *list = visible > 0 ? interfaces : NULL;
    for (int i = 0; i < visible; i++) {
        const Interface *of = &INTERFACE[i];
        addresses[i] = (struct sockaddr_in){.sin_family = (sa_family_t)of->family};
        if (of->address) inet_pton(AF_INET, of->address, &addresses[i].sin_addr);
        interfaces[i] = (struct ifaddrs){
            .ifa_next = i + 1 < visible ? &interfaces[i + 1] : NULL,
            .ifa_addr = of->address ? (struct sockaddr *)(void *)&addresses[i] : NULL,
            .ifa_flags = of->flags,
        };
    }
    return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list) {
    assert_true(list == (visible > 0 ? interfaces : NULL));
    freed++;
}

static void test_own_address(void **state) {
    (void)state;
    char text[64];
    freed = 0;
    for (visible = 0; visible <= INTERFACES; visible++) {
        Error err = {0};
        int status = init_own_address(text, sizeof text, &err);
        assert_int_equal(status, visible < 6 ? -1 : 0);
        if (status == 0)
            assert_string_equal(text, "10.9.9.4");
        else
            check_message(&err, "this host has no network: set MASTER_ADDR to rank 0's host");
        assert_int_equal(freed, visible + 1);
    }
    Error err = {0};
    visible = INTERFACES;
    assert_int_equal(init_own_address(text, 9, &err), 0); // 8 characters and a NUL
    assert_int_equal(init_own_address(text, 8, &err), -1);
    visible = -1;
    err = (Error){0};
    assert_int_equal(init_own_address(text, sizeof text, &err), -1);
    check_message(&err, strerror(ENOBUFS));
}

// ---- The heartbeat page ---------------------------------------------------------------------

static const char *failing; // the next call of this function fails with ENOSPC

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
void *__real_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);

static bool fails(const char *name) {
    errno = ENOSPC;
    return failing && strcmp(failing, name) == 0;
}

int __wrap_memfd_create(const char *name, unsigned flags) {
    return fails("memfd_create") ? -1 : __real_memfd_create(name, flags);
}

int __wrap_ftruncate(int fd, off_t bytes) {
    return fails("ftruncate") ? -1 : __real_ftruncate(fd, bytes);
}

// Descriptors from HIGH on, beyond the limit of most users, are aliases of high_board.
enum { HIGH = 1 << 19 };
static int high_board;

int __real_fstat(int fd, struct stat *about), __wrap_fstat(int fd, struct stat *about);

int __wrap_fstat(int fd, struct stat *about) {
    return __real_fstat(fd < HIGH ? fd : high_board, about);
}

void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset) {
    if (fails("mmap")) return MAP_FAILED;
    return __real_mmap(at, bytes, access, flags, fd < HIGH ? fd : high_board, offset);
}

// Number of mappings of a heartbeat page in this process.
static int mapped_pages(void) {
    char line[400];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) count += strstr(line, "ddprun-heartbeat") != NULL;
    fclose(file);
    return count;
}

static void test_no_board(void **state) {
    (void)state;
    static const char *const calls[] = {"memfd_create", "ftruncate", "mmap"};
    const int next = dup(STDIN_FILENO); // the lowest free descriptor
    close(next);
    for (int i = 0; i < 3; i++) {
        HeartbeatBoard board = {0};
        Error err = {0};
        failing = calls[i];
        assert_int_equal(heartbeat_board_open(&board, 2, &err), -1);
        failing = NULL;
        check_message(&err, "cannot make the page for heartbeats: ");
        check_message(&err, strerror(ENOSPC));
        assert_null(board.page);
        const int again = dup(STDIN_FILENO);
        assert_int_equal(again, next);
        close(again);
    }
}

static void set_board(const char *format, int fd) {
    char text[40];
    snprintf(text, sizeof text, format, fd);
    setenv("DDPRUN_HEARTBEAT", text, 1);
}

static Heartbeat *open_line(int local_rank) {
    Heartbeat *heartbeat = NULL;
    Error err = {0};
    if (heartbeat_open(local_rank, &heartbeat, &err) != 0) fail_msg("%s", err.message);
    assert_non_null(heartbeat);
    return heartbeat;
}

static void assert_view(const HeartbeatBoard *board, int rank, const HeartbeatView *wanted) {
    HeartbeatView view = heartbeat_board_read(board, rank);
    assert_string_equal(view.phase, wanted->phase);
    assert_string_equal(view.kind, wanted->kind);
    assert_int_equal(view.step, wanted->step);
    assert_int_equal(view.sequence, wanted->sequence);
    assert_int_equal(view.culprit, wanted->culprit);
    assert_int_equal(view.beat_ns > 0, wanted->phase[0] || wanted->kind[0]);
}

// Three ranks write heartbeats; each line belongs to one rank, and a new attempt starts with empty
// lines.
static void test_heartbeats(void **state) {
    (void)state;
    enum { RANKS = 3 };
    HeartbeatBoard board = {0};
    Error err = {0};
    assert_int_equal(dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO), STDIN_FILENO);
    heartbeat_board_close(&board); // not open
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), 0);
    close(STDIN_FILENO); // the board's descriptor will be 0
    CHECK_OK(heartbeat_board_open(&board, RANKS, &err) == 0, err);
    assert_int_equal(board.fd, STDIN_FILENO);
    heartbeat_board_close(&board);
    assert_int_equal(open("/dev/null", O_RDONLY), STDIN_FILENO); // and is free again
    CHECK_OK(heartbeat_board_open(&board, RANKS, &err) == 0, err);
    assert_int_equal(fcntl(board.fd, F_GETFD), FD_CLOEXEC);
    assert_memory_equal(board.page, "dddpbea2", 8); // also of launchers and ranks of other builds
    set_board("%d", board.fd);
    HeartbeatView wanted[RANKS] = {{.phase = ""}};
    for (int attempt = 0; attempt < 2; attempt++) {
        Heartbeat *ranks[RANKS];
        memset(wanted, 0, sizeof wanted);
        for (int r = 0; r < RANKS; r++) {
            ranks[r] = open_line(r);
            assert_view(&board, r, &wanted[r]);
        }
        heartbeat_enter(ranks[2], "a phase: \ttoo long", 7); // cut; control characters replaced
        strcpy(wanted[2].phase, "a?phase:??too?l");
        const char *line = (const char *)board.page + 3 * 128; // its last byte is always 0
        assert_memory_equal(line, "a phase: \ttoo l", 16);
        wanted[2].step = 7;
        heartbeat_enter(ranks[0], "exactly15bytes.", 1);
        strcpy(wanted[0].phase, "exactly15bytes.");
        wanted[0].step = 1;
        for (int r = 0; r < RANKS; r++) assert_view(&board, r, &wanted[r]);
        uint64_t first = heartbeat_board_read(&board, 0).beat_ns;
        heartbeat_collective(ranks[0], 9, "all_reduce\x7f");
        strcpy(wanted[0].kind, "all_reduce?");
        wanted[0].sequence = 9;
        heartbeat_collective(ranks[1], 1, "~");
        strcpy(wanted[1].kind, "~");
        wanted[1].sequence = 1;
        heartbeat_culprit(ranks[1]);
        wanted[1].culprit = true;
        for (int r = 0; r < RANKS; r++) assert_view(&board, r, &wanted[r]);
        uint64_t second = heartbeat_board_read(&board, 0).beat_ns;
        assert_true(second > first);         // the latest of the two ranks
        heartbeat_enter(ranks[0], "end", 2); // a shorter name overwrites all of a longer one
        strcpy(wanted[0].phase, "end");
        wanted[0].step = 2;
        assert_view(&board, 0, &wanted[0]);
        assert_true(heartbeat_board_read(&board, 0).beat_ns > second);
        assert_int_equal(mapped_pages(), 1 + RANKS);
        for (int r = 0; r < RANKS; r++) heartbeat_close(ranks[r]);
        assert_int_equal(mapped_pages(), 1);
        char *behind = (char *)board.page + 128 * (1 + RANKS);
        *behind = 7;
        heartbeat_board_clear(&board);
        assert_int_equal(*behind, 7);
    }
    memset(wanted, 0, sizeof wanted);
    for (int r = 0; r < RANKS; r++) assert_view(&board, r, &wanted[r]);
    heartbeat_board_close(&board);
    unsetenv("DDPRUN_HEARTBEAT");
}

static void refuse_board(int local_rank) {
    Heartbeat *heartbeat = (Heartbeat *)&local_rank; // must be overwritten
    Error err = {0};
    assert_int_equal(heartbeat_open(local_rank, &heartbeat, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    check_message(&err, "which is no heartbeat page of a ddprun with a local rank");
    assert_null(heartbeat);
}

// The variable of an earlier launcher, whose descriptor is now closed or another kind of file.
static void test_stale_heartbeat(void **state) {
    (void)state;
    enum { RANKS = 2 };
    HeartbeatBoard board;
    Error err = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    CHECK_OK(heartbeat_board_open(&board, RANKS, &err) == 0, err);
    set_board("%d", board.fd);
    refuse_board(-1);
    refuse_board(RANKS);
    high_board = board.fd;
    set_board("%d", 1 << 20);
    heartbeat_close(open_line(0));
    set_board("%d", (1 << 20) + 1);
    refuse_board(0);
    set_board("%d", board.fd);
    heartbeat_close(open_line(RANKS - 1));
    static const char *const bad[] = {"", "x", "%d ", "-%d", "0", "2", "1023"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (strchr(bad[i], '%'))
            set_board(bad[i], board.fd);
        else
            setenv("DDPRUN_HEARTBEAT", bad[i], 1);
        refuse_board(0);
    }
    set_board("%d", ends[0]);
    refuse_board(0);
    const int kept = dup(STDERR_FILENO); // a standard descriptor is never a page
    assert_int_equal(dup2(board.fd, STDERR_FILENO), STDERR_FILENO);
    set_board("%d", STDERR_FILENO);
    refuse_board(0);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    close(kept);
    // A wrong size for the ranks, a wrong magic number.
    set_board("%d", board.fd);
    uint64_t *header = board.page, magic = header[0];
    header[0] = magic + 1;
    refuse_board(0);
    header[0] = magic;
    for (uint64_t ranks = RANKS - 1; ranks <= RANKS + 1; ranks++) {
        header[1] = ranks;
        if (ranks == RANKS)
            heartbeat_close(open_line(0));
        else
            refuse_board(0);
    }
    header[1] = UINT64_MAX / 128 + 1 + RANKS; // the product wraps around to the page's size
    refuse_board(0);
    header[1] = RANKS;
    assert_int_equal(ftruncate(board.fd, 127), 0); // shorter than the header
    refuse_board(0);
    unsetenv("DDPRUN_HEARTBEAT");
    Heartbeat *none = (Heartbeat *)&board;
    assert_int_equal(heartbeat_open(0, &none, &err), 0); // without a launcher
    assert_null(none);
    assert_int_equal(mapped_pages(), 1);
    heartbeat_board_close(&board);
    assert_int_equal(mapped_pages(), 0);
    close(ends[0]);
    close(ends[1]);
}

static Rendezvous alone(void) {
    return (Rendezvous){
        .local_rank = 1, .world_size = 1, .local_world_size = 2, .master_addr = "127.0.0.1"};
}

static HeartbeatBoard open_board(void) {
    HeartbeatBoard board;
    Error err = {0};
    CHECK_OK(heartbeat_board_open(&board, 2, &err) == 0, err);
    set_board("%d", board.fd);
    return board;
}

static void close_board(HeartbeatBoard *board) {
    assert_int_equal(mapped_pages(), 1); // the launcher's own
    unsetenv("DDPRUN_HEARTBEAT");
    heartbeat_board_close(board);
}

// A group reports phases, collectives, and its own failure.
static void test_heartbeats_of_a_group(void **state) {
    (void)state;
    HeartbeatBoard board = open_board();
    Error err = {0};
    float sum = 1;
    const Rendezvous me = alone();
    ProcessGroup *group = init_process_group("shm", &me, NULL, 20, &err);
    CHECK_OK(group, err);
    HeartbeatView view = heartbeat_board_read(&board, 1);
    assert_string_equal(view.phase, ""); // no longer "init"
    assert_true(view.beat_ns > 0);
    assert_int_equal(view.sequence, 0);
    CHECK_OK(pg_run(group, pg_all_reduce(&sum, 1, PG_F32, PG_SUM), &err) == 0, err);
    assert_view(&board, 1, &(HeartbeatView){.kind = "all_reduce", .sequence = 1});
    pg_enter(group, "train", 7);
    assert_true(pg_abort(group, &(Error){STATUS_FAILED, "it broke"}));
    assert_view(
        &board, 1,
        &(HeartbeatView){
            .phase = "train", .step = 7, .kind = "all_reduce", .sequence = 1, .culprit = 1});
    pg_close(group);
    close_board(&board);
}

// A rendezvous that fails leaves the phase "init".
static void test_heartbeats_without_a_group(void **state) {
    (void)state;
    HeartbeatBoard board = open_board();
    Error err = {0};
    Rendezvous me = alone();
    strcpy(me.master_addr, "no..such..host");
    assert_null(init_process_group("shm", &me, NULL, 0.1, &err));
    assert_string_equal(heartbeat_board_read(&board, 1).phase, "init");
    setenv("DDPRUN_HEARTBEAT", "x", 1);
    err = (Error){0};
    assert_null(init_process_group("shm", &me, NULL, 0.1, &err));
    check_message(&err, "DDPRUN_HEARTBEAT is 'x'");
    close_board(&board);
}

// A group in the caller's store is not the launcher's job.
static void test_no_heartbeats_of_a_callers_store(void **state) {
    (void)state;
    HeartbeatBoard board = open_board();
    Rendezvous me;
    Error err = {0};
    StoreServer *server = store_serve("127.0.0.1", 0, "", &err);
    CHECK_OK(server, err);
    Store *store = store_connect("127.0.0.1", store_server_port(server), "", 20, &err);
    CHECK_OK(store && init_from_store(&me, store, 0, 1, &err) == 0, err);
    ProcessGroup *group = init_process_group("shm", &me, NULL, 20, &err);
    CHECK_OK(group, err);
    assert_view(&board, 0, &(HeartbeatView){.sequence = 0});
    pg_close(group);
    store_close(store);
    store_server_close(server);
    close_board(&board);
}

// ---- Settings of two ranks ------------------------------------------------------------------

static void test_compare_settings(void **state) {
    (void)state;
    static const struct {
        const char *mine, *theirs, *says; // says: the error; NULL: the settings agree
    } cases[] = {
        {"", "", NULL},
        {"lr 0.1\n", "lr 0.1\n", NULL},
        {"lr 0.1\nsteps 5\n", "lr 0.1\nsteps 5\n", NULL},
        {"lr 0.1\nsteps 5", "lr 0.1\nsteps 5", NULL},
        {"lr 0.1\nsteps 5", "lr 0.1\nsteps 5\n", NULL},
        {"lr 0.1\nsteps 5\n", "lr 0.1\nsteps 5", NULL},
        {"x 1\n", "x 2\n", "x is 1 at rank 3 and 2 at rank 5"},
        {" 1\n", " 2\n", "different options, as different programs do: ' 1' and ' 2'"},
        {"lr 0.1\n", "lr 0.2\n", "lr is 0.1 at rank 3 and 0.2 at rank 5 -- start all ranks"},
        {"lr 0.1\n", "lr 0.12\n", "lr is 0.1 at rank 3 and 0.12 at rank 5"},
        {"lr 0.12\nx 1\n", "lr 0.1\nx 1\n", "lr is 0.12 at rank 3 and 0.1 at rank 5"},
        {"lr 0.1\nsteps 5\nx 1\n", "lr 0.1\nsteps 50\nx 2\n", "steps is 5 at rank 3 and 50 at"},
        {"lr 0.1\n", "le 0.1\n", "have different options, as different programs do: 'lr 0.1' and"},
        {"lr 0.1\n", "lrs 0.1\n", "ranks 3 and 5 have different options"},
        {"lr 0.1\nx 1\n", "lr 0.1\n", "different options, as different programs do: 'x 1' and ''"},
        {"lr 0.1\n", "lr 0.1\nx 1\n", "different options, as different programs do: '' and 'x 1'"},
        {"", "x 1\n", "different options, as different programs do: '' and 'x 1' -- start the"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        int status = compare_settings(cases[i].mine, 3, cases[i].theirs, 5, &err);
        assert_int_equal(status, cases[i].says ? -1 : 0);
        if (cases[i].says) check_message(&err, cases[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_address),
        cmocka_unit_test(test_no_board),
        cmocka_unit_test(test_heartbeats),
        cmocka_unit_test(test_stale_heartbeat),
        cmocka_unit_test(test_heartbeats_of_a_group),
        cmocka_unit_test(test_heartbeats_without_a_group),
        cmocka_unit_test(test_no_heartbeats_of_a_callers_store),
        cmocka_unit_test(test_compare_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
