/* init.c: the rendezvous of a job's ranks, and the group that follows (ddp/rendezvous/init.h).
 *
 * They meet in the store:
 *
 *   every rank   publishes its card under rank/R: world size, host, pid, device
 *   rank 0       reads all cards, checks that they form one job, and publishes the plan: the
 *                group's address, or the error, so that all ranks fail with the same message
 *   the others   open the group at that address and acknowledge under attached/R
 *   rank 0       publishes "go" after the last acknowledgement
 *
 * A rank that fails publishes its error in place of its next message, so no rank waits for it. One
 * deadline covers all waiting.
 *
 * Afterwards the ranks disconnect from the store; a group that keeps the store, to propagate
 * failures, disconnects when it is closed.
 *
 * The environment is read in init_env.c; the groups belong to the backends (ddp/group/backends.h).
 */
#include "ddp/rendezvous/init.h"

#include <float.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/machine.h"
#include "common/base/memory.h"
#include "ddp/group/backends.h"
#include "ddp/group/debug_level.h"
#include "ddp/group/shm/pg_shm.h"
#include "ddp/rendezvous/heartbeat.h"
#include "ddp/rendezvous/meeting_file.h"
#include "ddp/rendezvous/rendezvous_internal.h"

enum { CARD_MAX = 340 + PG_CARD_MAX + INIT_ALIKE_MAX, VERDICT_MAX = 1200, MISSING_SHOWN = 16 };
enum { KEY_MAX = 32 };

#define PART_S    2.0  // time-out for rank 0 to close the connection
#define STORE_S   10.0 // time-out of a group's calls to the store
#define LOOK_UP_S 0.1  // interval at which rank 0 checks for other ranks' errors

// A rank's card. As text: "world host boot_id pid_namespace pid stamp backend device\n" and the
// lines of alike.
typedef struct Card {
    int world_size, pid;
    unsigned long long stamp; // time of creation: distinguishes two groups of one process
    char host[72], boot_id[48], pid_namespace[48], backend[16], device[PG_CARD_MAX];
} Card;

typedef struct Meeting {
    Rendezvous me;
    PgOptions options; // of the group; its timeout is also the rendezvous' deadline
    const PgOpener *backend;
    const PgOpener *starter; // see find_starter
    Card card;               // this rank's; its device is "-" if the backend needs none
    uint64_t deadline_ns;
    MeetingFile *file;   // NULL without file://
    StoreServer *server; // NULL unless this rank serves the store
    Store *store;
    PgEndpoint place; // for the backend's opener
} Meeting;

static bool parse_card(const char *text, Card *card) {
    return sscanf(text, "%d %71s %47s %47s %d %llu %15s %191s", &card->world_size, card->host,
                  card->boot_id, card->pid_namespace, &card->pid, &card->stamp, card->backend,
                  card->device) == 8;
}

// ---- Waiting and publishing

static double left_s(const Meeting *m) {
    uint64_t now = clock_ns();
    return now < m->deadline_ns ? (double)(m->deadline_ns - now) * 1e-9 : 0.0;
}

// The key of a rank's message: its card, or its acknowledgement.
static void make_key(char key[KEY_MAX], const char *stage, int rank) {
    snprintf(key, KEY_MAX, "%s/%d", stage, rank);
}

// Reads a key without waiting, by a compare-and-set that changes nothing: no key's value is "-".
// text: "" if the key is missing.
static int read_key(Meeting *m, const char *key, char *text, size_t capacity, Error *err) {
    return store_compare_set(m->store, key, "-", "-", text, capacity, err);
}

// Parses a verdict. Returns 0 for "ok ..."; -1 with err filled for "error ..." and "usage ..." (a
// wrong input).
static int check_verdict(const char *text, Error *err) {
    bool usage = strncmp(text, "usage ", 6) == 0;
    if (!usage && strncmp(text, "error ", 6) != 0) return 0;
    return error_set(err, usage ? STATUS_USAGE : STATUS_FAILED, "%s", text + 6);
}

// Publishes a verdict; the first one under a key is kept.
static int publish(Meeting *m, const char *key, const char *kind, const char *text, Error *err) {
    char mine[VERDICT_MAX], stands[VERDICT_MAX];
    snprintf(mine, sizeof mine, "%s %s", kind, text);
    if (store_compare_set(m->store, key, "", mine, stands, sizeof stands, err) != 0) return -1;
    return check_verdict(stands, err);
}

// Publishes why this rank gives up; a failure of that is ignored. Returns -1.
static int give_up(Meeting *m, const char *key, const Error *cause) {
    const char *kind = cause->status == STATUS_USAGE ? "usage" : "error";
    (void)publish(m, key, kind, cause->message, NULL);
    return -1;
}

// Reads a verdict, up to a second after the deadline: rank 0 publishes the missing ranks only then.
static int await_verdict(Meeting *m, const char *key, char *payload, size_t capacity, Error *err) {
    char text[VERDICT_MAX];
    if (store_wait(m->store, key, left_s(m) + 1.0, err) != 0 ||
        read_key(m, key, text, sizeof text, err) != 0)
        return error_prefix(err, "waiting for rank 0");
    if (check_verdict(text, err) != 0) return -1;
    if (strncmp(text, "ok ", 3) != 0 || strlen(text + 3) >= capacity)
        return error_set(err, STATUS_FAILED, "rank 0 published something else: '%.80s'", text);
    strcpy(payload, text + 3);
    return 0;
}

// ---- Every rank: publishes its card

// Host name and boot id do not distinguish two containers of one machine; ranks in different pid
// namespaces cannot open each other's memory through /proc.
static int leave_card(Meeting *m, Error *err) {
    char key[KEY_MAX], mine[CARD_MAX], stands[CARD_MAX];
    Card *card = &m->card, other = {0};
    card->world_size = m->me.world_size;
    card->pid = getpid();
    card->stamp = clock_ns();
    snprintf(card->backend, sizeof card->backend, "%s", m->backend->name);
    machine_name(card->host, sizeof card->host);
    machine_boot_id(card->boot_id, sizeof card->boot_id);
    ssize_t n = readlink("/proc/self/ns/pid", card->pid_namespace, sizeof card->pid_namespace - 1);
    if (n <= 0) strcpy(card->pid_namespace, "?");
    snprintf(mine, CARD_MAX, "%d %s %s %s %d %llu %s %s\n%s", card->world_size, card->host,
             card->boot_id, card->pid_namespace, card->pid, card->stamp, card->backend,
             card->device, m->me.alike);
    make_key(key, "rank", m->me.rank);
    if (store_compare_set(m->store, key, "", mine, stands, sizeof stands, err) != 0) return -1;
    if (strcmp(stands, mine) == 0) return 0;
    (void)parse_card(stands, &other);
    if (other.pid == card->pid && strcmp(other.host, card->host) == 0)
        return error_set(err, STATUS_FAILED,
                         "rank %d: trying to initialize the default process group twice! (a store "
                         "is good for one group under one prefix: make others with "
                         "pg_new_subgroup)",
                         m->me.rank);
    error_set(err, STATUS_USAGE, "two processes say that they are rank %d: pid %d on %s and pid %d",
              m->me.rank, other.pid, other.host, card->pid);
    return give_up(m, "plan", err);
}

// ---- Rank 0: reads the cards, publishes the plan

// "ranks 2, 5 of 8 have not come within 30 s"
static int fail_missing(Meeting *m, const char *stage, Error *err) {
    char list[256] = "", key[KEY_MAX];
    int missing = 0;
    for (int r = 1; r < m->me.world_size; r++) {
        Error ignored = {0};
        make_key(key, stage, r);
        if (store_wait(m->store, key, 0, &ignored) == 0) continue;
        if (missing < MISSING_SHOWN)
            format_append(list, sizeof list, "%s%d", missing ? ", " : "", r);
        else if (missing == MISSING_SHOWN)
            format_append(list, sizeof list, ", ...");
        missing++;
    }
    return error_set(err, STATUS_FAILED, "rank%s %s of %d ha%s not come within %g s",
                     missing == 1 ? "" : "s", list, m->me.world_size, missing == 1 ? "s" : "ve",
                     m->options.timeout_s);
}

// Whether two ranks can share memory, for backends of one system.
static int check_system(const Meeting *m, int rank, const Card *mine, const Card *theirs,
                        Error *err) {
    bool same_system = strcmp(theirs->boot_id, mine->boot_id) == 0 &&
                       strcmp(theirs->pid_namespace, mine->pid_namespace) == 0;
    if (same_system && strcmp(theirs->host, mine->host) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "backend %s needs all ranks in one system: rank %d is on %s, rank %d on "
                     "%s%s: use --backend mpi",
                     m->backend->name, m->me.rank, mine->host, rank, theirs->host,
                     strcmp(theirs->host, mine->host) == 0 ? " in another container" : "");
}

// For backends that need a GPU for each rank. cards: [rank + 1]; all but the last are checked.
static int check_gpu(const Card *cards, int rank, Error *err) {
    for (int other = 0; other < rank; other++) {
        if (strcmp(cards[other].device, cards[rank].device) != 0) continue;
        return error_set(err, STATUS_USAGE,
                         "ranks %d and %d share a GPU, %s: start one rank per GPU (ddprun "
                         "--nproc-per-node gpu), or, for correctness only, ddprun --fake-hosts",
                         other, rank, cards[rank].device);
    }
    return 0;
}

// alike: that rank's settings.
static int check_card(const Meeting *m, const Card *cards, int rank, const char *alike,
                      Error *err) {
    const Card *mine = &cards[0], *theirs = &cards[rank];
    if (theirs->world_size != mine->world_size)
        return error_set(err, STATUS_USAGE, "WORLD_SIZE is %d at rank %d and %d at rank %d",
                         mine->world_size, m->me.rank, theirs->world_size, rank);
    if (compare_settings(m->me.alike, m->me.rank, alike, rank, err) != 0) return -1;
    if (strcmp(mine->backend, theirs->backend) != 0)
        return error_set(err, STATUS_USAGE, "the backend is %s at rank %d and %s at rank %d",
                         mine->backend, m->me.rank, theirs->backend, rank);
    if (m->backend->one_system && check_system(m, rank, mine, theirs, err) != 0) return -1;
    return m->backend->card ? check_gpu(cards, rank, err) : 0;
}

// Waits for the verdict of rank r under "stage/r"; returns early if another rank gives up.
static int await_rank(Meeting *m, const char *stage, int r, char *text, size_t capacity,
                      Error *err) {
    char key[KEY_MAX], plan[VERDICT_MAX];
    make_key(key, stage, r);
    for (;;) {
        Error late = {0};
        double left = left_s(m);
        if (store_wait(m->store, key, left < LOOK_UP_S ? left : LOOK_UP_S, &late) == 0)
            return read_key(m, key, text, capacity, err);
        if (read_key(m, "plan", plan, sizeof plan, err) != 0) return -1;
        if (check_verdict(plan, err) != 0) return -1;
        if (left <= 0) return fail_missing(m, stage, err);
    }
}

static int gather_cards(Meeting *m, Error *err) {
    Card *cards = memory_zalloc((size_t)m->me.world_size * sizeof *cards);
    int status = 0;
    cards[0] = m->card;
    for (int r = 1; r < m->me.world_size && status == 0; r++) {
        char text[CARD_MAX];
        status = await_rank(m, "rank", r, text, sizeof text, err);
        const char *end = status == 0 ? strchr(text, '\n') : NULL;
        if (end && parse_card(text, &cards[r]))
            status = check_card(m, cards, r, end + 1, err);
        else if (status == 0)
            status = error_set(err, STATUS_FAILED, "rank %d left '%.80s' as its card", r, text);
    }
    free(cards);
    return status;
}

static int await_reached(Meeting *m, Error *err) {
    for (int r = 1; r < m->me.world_size; r++) {
        char text[VERDICT_MAX];
        if (await_rank(m, "attached", r, text, sizeof text, err) != 0) return -1;
        if (check_verdict(text, err) == 0) continue;
        error_prefix(err, "rank %d cannot attach", r);
        return -1;
    }
    return 0;
}

static int lead(Meeting *m, Error *err) {
    if (gather_cards(m, err) != 0 || m->backend->create(&m->place, err) != 0)
        return give_up(m, "plan", err);
    if (publish(m, "plan", "ok", m->place.address, err) != 0) return -1;
    if (await_reached(m, err) != 0) return give_up(m, "go", err);
    return publish(m, "go", "ok", "", err);
}

// ---- The other ranks

static int follow(Meeting *m, Error *err) {
    char nothing[VERDICT_MAX], key[KEY_MAX];
    if (await_verdict(m, "plan", m->place.address, sizeof m->place.address, err) != 0) return -1;
    make_key(key, "attached", m->me.rank);
    if (m->backend->reach && m->backend->reach(&m->place, err) != 0) return give_up(m, key, err);
    if (publish(m, key, "ok", "", err) != 0) return -1;
    return await_verdict(m, "go", nothing, sizeof nothing, err);
}

// ---- The store

static int serve(Meeting *m, Error *err) {
    m->server = store_serve(m->me.master_addr, m->me.master_port, m->me.token, err);
    if (!m->server) return -1;
    m->me.master_port = store_server_port(m->server);
    return 0;
}

// Serves at a free port.
static int serve_anywhere(Meeting *m, Error *err) {
    m->me.master_port = 0;
    return store_make_token(m->me.token, err) == 0 ? serve(m, err) : -1;
}

// file://: rank 0 writes port and token to the file, which is readable by its owner.
static int find_store(Meeting *m, Error *err) {
    Rendezvous *me = &m->me;
    m->file = meeting_file_join(me->file_path, me->rank, me->world_size, m->deadline_ns, err);
    if (!m->file) return -1;
    if (me->rank != 0)
        return meeting_file_await(m->file, &me->master_port, me->token, m->deadline_ns, err);
    if (serve_anywhere(m, err) != 0) return -1;
    return meeting_file_publish(m->file, me->master_port, me->token, m->deadline_ns, err);
}

// Without MASTER_ADDR rank 0 broadcasts "ok ADDRESS PORT TOKEN" or "error ..." by the starter's
// backend.
static int find_told_store(Meeting *m, Error *err) {
    Rendezvous *me = &m->me;
    char text[VERDICT_MAX] = "", *host = me->master_addr;
    if (me->rank == 0) {
        bool known = !me->several_hosts || init_own_address(host, sizeof me->master_addr, err) == 0;
        if (known && serve_anywhere(m, err) == 0)
            snprintf(text, sizeof text, "ok %s %d %s", host, me->master_port, me->token);
        else
            snprintf(text, sizeof text, "error %s", err->message);
    }
    m->starter->tell(text, sizeof text, m->options.timeout_s);
    if (me->rank == 0) return m->server ? 0 : -1;
    if (sscanf(text, "ok %255s %d %64s", host, &me->master_port, me->token) == 3) return 0;
    return error_set(err, STATUS_FAILED, "%s",
                     strncmp(text, "error ", 6) == 0 ? text + 6 : "rank 0 said nothing");
}

// Connects to the store, and serves it first if this rank has to.
static Store *open_store(Meeting *m, Error *err) {
    const Rendezvous *me = &m->me;
    int status = 0;
    if (me->store) return store_clone(me->store, m->options.timeout_s, err);
    if (me->file_path[0])
        status = find_store(m, err);
    else if (me->master_unknown && m->starter && m->starter->tell)
        status = find_told_store(m, err);
    else if (me->rank == 0 && !me->launcher_store)
        status = serve(m, err);
    if (status != 0) return NULL;
    return store_connect(me->master_addr, me->master_port, me->token, m->options.timeout_s, err);
}

// Disconnects. The rank that serves the store closes it after the others have read their last
// reply, also after an error, but then with a short time-out. The others wait, for at most PART_S,
// until it closes the connection: their next rendezvous at this address must not find this store.
static void part(Meeting *m, double patience_s) {
    Error ignored = {0};
    int64_t gone = 0;
    int others = m->me.world_size - 1;
    if (m->me.launcher_store || m->me.store || others == 0)
        return; // another process serves the store
    if (m->me.rank == 0) {
        (void)store_wait(m->store, "parted", patience_s, &ignored);
    } else if (store_add(m->store, "parting", 1, &gone, &ignored) == 0) {
        if (gone == others) (void)store_set(m->store, "parted", "", 0, &ignored);
        (void)store_wait(m->store, "never set", patience_s < PART_S ? patience_s : PART_S,
                         &ignored);
    }
}

static void meeting_close(Meeting *m, double patience_s) {
    if (m->store) part(m, patience_s);
    store_close(m->store);
    store_server_close(m->server);
    meeting_file_leave(m->file);
    free(m);
}

// Called when a group that has kept the store is closed.
static void leave_group(void *meeting) {
    meeting_close(meeting, PART_S);
}

// ---- The group

// Opens the group. *kept: whether it has taken over the store connection.
static ProcessGroup *open_group(Meeting *m, bool *kept, Error *err) {
    double patience_s = m->options.timeout_s < STORE_S ? m->options.timeout_s : STORE_S;
    if (m->backend->keeps_store && !(m->place.store = store_clone(m->store, patience_s, err)))
        return NULL;
    m->place.leave = leave_group;
    m->place.context = m;
    ProcessGroup *group = m->backend->open(&m->place, err);
    *kept = group && m->backend->keeps_store;
    return group;
}

// Rendezvous, then the group. NULL with err filled on failure.
static ProcessGroup *meet(Meeting *m, Error *err) {
    bool kept = false;
    ProcessGroup *group = NULL;
    char prefix[32]; // separates the keys of earlier attempts
    snprintf(prefix, sizeof prefix, "attempt_%d", m->me.restart_count);
    m->store = open_store(m, err);
    if (m->store) store_add_prefix(m->store, prefix);
    if (m->store && leave_card(m, err) == 0 &&
        (m->me.rank == 0 ? lead(m, err) : follow(m, err)) == 0)
        group = open_group(m, &kept, err);
    if (kept) return group;
    if (m->backend->release) m->backend->release(&m->place);
    meeting_close(m, group ? left_s(m) + 0.1 : 0.5);
    return group;
}

// ---- The group's observer

// Reports phases and collectives to the launcher's heartbeat page, if there is one; the phase is
// "init" until the group is open. A group in the caller's own store is not the job's and is not
// reported.
static int open_observer(const Rendezvous *me, PgObserver *observer, Error *err) {
    Heartbeat *heartbeat;
    if (heartbeat_open(me->local_rank, &heartbeat, err) != 0) return -1;
    if (heartbeat && me->store) heartbeat_close(heartbeat);
    if (!heartbeat || me->store) return 0;
    heartbeat_enter(heartbeat, "init", 0);
    *observer = (PgObserver){.context = heartbeat,
                             .begins = heartbeat_collective,
                             .close = heartbeat_close,
                             .enters = heartbeat_enter,
                             .fails = heartbeat_culprit};
    return 0;
}

static void tell_group(const ProcessGroup *group, double timeout_s) {
    fprintf(stderr, "rank %d of %d (pid %d): group over %s, timeout %g s\n", pg_rank(group),
            pg_size(group), (int)getpid(), pg_backend(group), timeout_s);
}

int init_from_store(Rendezvous *rendezvous, Store *store, int rank, int world_size, Error *err) {
    *rendezvous = (Rendezvous){.rank = rank,
                               .world_size = world_size,
                               .local_rank = rank,
                               .local_world_size = world_size,
                               .store = store};
    if (!store) return error_set(err, STATUS_USAGE, "there is no store to meet in");
    if (rank >= 0 && rank < world_size && world_size <= INIT_WORLD_MAX) return 0;
    return error_set(err, STATUS_USAGE, "there is no rank %d in a world of %d", rank, world_size);
}

// The backend whose prepare and tell connect the ranks to the store: this rank's own backend if it
// has them; under mpirun mpi, also for a rank with backend shm, so that it finds the ranks with
// mpi. NULL: no backend; the store's address must be given.
static const PgOpener *find_starter(const Rendezvous *me, const PgOpener *backend) {
    if (backend->prepare) return backend;
    bool may_meet_others = backend->one_system && me->by_mpirun && me->world_size > 1;
    return may_meet_others ? pg_backend_of_starter() : NULL;
}

static int check_master(const Rendezvous *me, const PgOpener *starter, Error *err) {
    if (!me->several_hosts || !me->master_unknown || (starter && starter->tell)) return 0;
    return error_set(err, STATUS_USAGE,
                     "the ranks are on several hosts: set MASTER_ADDR to rank 0's host");
}

static int check_world(int rank, int world, Error *err) {
    if (rank >= 0 && rank < world) return 0;
    return error_set(err, STATUS_USAGE, "rank %d of a world of %d: expected 0 <= rank < world",
                     rank, world);
}

ProcessGroup *init_process_group(const char *backend, const Rendezvous *rendezvous, Device *device,
                                 double timeout_s, Error *err) {
    const Rendezvous *me = rendezvous;
    DebugLevel level;
    PgObserver observer = {0};
    char card[PG_CARD_MAX] = "-";
    if (clock_check_timeout(timeout_s, DBL_MIN, err) != 0) return NULL;
    if (check_world(me->rank, me->world_size, err) != 0) return NULL;
    const PgOpener *opener = pg_backend_find(backend, device, err);
    if (!opener) return NULL;
    const PgOpener *starter = find_starter(me, opener);
    if (check_master(me, starter, err) != 0) return NULL;
    if (starter && starter->prepare(me->rank, me->world_size, timeout_s, err) != 0) return NULL;
    if (opener->card && opener->card(device, me->rank, card, err) != 0) return NULL;
    if (debug_level_read(&level, err) != 0 || open_observer(me, &observer, err) != 0) return NULL;
    Meeting *m = memory_zalloc(sizeof *m);
    *m = (Meeting){
        .me = *me,
        .options = {.timeout_s = timeout_s,
                    .observer = observer,
                    .flight_folder = getenv("DDPC_FLIGHT_DIR"),
                    .flight_pipe = getenv("DDPC_FLIGHT_PIPE"),
                    .flight_say = level == DEBUG_DETAIL,
                    .dry = device && device_is_dry(device)},
        .backend = opener,
        .starter = starter,
        .deadline_ns = clock_ns_after(timeout_s),
        .place = {
            .device = device, .rank = me->rank, .world = me->world_size, .options = &m->options}};
    memcpy(m->card.device, card, sizeof card);
    ProcessGroup *group = meet(m, err);
    if (group && device) pg_emulate_link(group, device->link);
    pg_enter(group, "", 0); // ends "init"; the program sets the next phase
    if (group && level >= DEBUG_INFO) tell_group(group, timeout_s);
    if (!group && observer.close) observer.close(observer.context);
    return group;
}

int init_thread_groups(int world, double timeout_s, ProcessGroup **groups, Error *err) {
    if (clock_check_timeout(timeout_s, DBL_MIN, err) != 0) return -1;
    if (check_world(0, world, err) != 0) return -1;
    return pg_shm_threads(world, &(PgOptions){.timeout_s = timeout_s}, groups, err);
}
