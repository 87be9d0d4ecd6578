/* init.c: how the ranks of a job find each other and become a ProcessGroup (ddp/rendezvous/init.h).
 *
 * They meet in the store. Every rank leaves its card (rank/R: world size, host, pid, GPU). Rank 0
 * reads all cards, decides whether they make a job, and publishes the plan: the address of the
 * shared memory or of the NCCL group, or the error, so that all ranks fail with the same words. The
 * others attach and say so; when rank 0 has heard from all it publishes "go". Whoever fails
 * publishes why instead: nobody waits for a rank that has already given up. All waiting ends at one
 * deadline.
 *
 * A group over shared memory has no more use for the store: the ranks part. With NCCL they part
 * when the group is closed, because by the store they tell each other of failures.
 *
 * The environment is read in env.c; the groups themselves are ddp/group/shm/pg_shm.h's and
 * ddp/group/nccl/pg_nccl.h's.
 */
#include "ddp/rendezvous/init.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/debug_level.h"
#include "ddp/group/nccl/pg_nccl.h"
#include "ddp/group/shm/pg_shm.h"
#include "ddp/rendezvous/heartbeat.h"
#include "ddp/rendezvous/internal.h"
#include "ddp/rendezvous/meeting_file.h"

enum { CARD_MAX = 320 + PG_NCCL_CARD_MAX, VERDICT_MAX = 1200, MISSING_SHOWN = 16 };

#define PART_S    2.0  // how long the others wait for rank 0 to hang up
#define STORE_S   10.0 // how long a rank of a group waits for an answer of the store
#define LOOK_UP_S 0.1  // how often rank 0, while it waits for a rank, looks whether another gave up

static const char NO_GPU[] = "-"; // on the cards of ranks that meet in shared memory

typedef struct Meeting {
    Rendezvous me;
    double timeout_s;
    Device *device; // for NCCL; NULL: shared memory
    char gpu[PG_NCCL_CARD_MAX];
    uint64_t deadline_ns;
    MeetingFile *file;   // NULL without file://
    StoreServer *server; // NULL unless this rank serves the store
    Store *store;
    // What a group is made of: shared memory, or an address.
    PgShmSegment *segment;
    char address[PG_NCCL_ADDRESS_MAX];
} Meeting;

typedef struct Card { // as text: "world host boot_id pid_namespace pid stamp gpu"
    int world_size, pid;
    unsigned long long stamp; // when it was made: tells two meetings of one process apart
    char host[72], boot_id[48], pid_namespace[48], gpu[PG_NCCL_CARD_MAX];
} Card;

// ---- Cards: what tells whether two ranks can share memory

static void read_line(const char *path, char *text, size_t capacity) {
    snprintf(text, capacity, "?");
    FILE *file = fopen(path, "re");
    if (!file) return;
    if (fgets(text, (int)capacity, file)) text[strcspn(text, " \n")] = '\0';
    fclose(file);
}

// Two containers of one machine may have the same name, and one kernel; ranks in different pid
// namespaces cannot open each other's memory through /proc.
static Card my_card(const Meeting *m) {
    Card card = {.world_size = m->me.world_size, .pid = getpid(), .stamp = clock_ns()};
    snprintf(card.gpu, sizeof card.gpu, "%s", m->gpu);
    if (gethostname(card.host, sizeof card.host - 1) != 0 || !card.host[0]) {
        snprintf(card.host, sizeof card.host, "?");
    }
    read_line("/proc/sys/kernel/random/boot_id", card.boot_id, sizeof card.boot_id);
    ssize_t n = readlink("/proc/self/ns/pid", card.pid_namespace, sizeof card.pid_namespace - 1);
    if (n <= 0) snprintf(card.pid_namespace, sizeof card.pid_namespace, "?");
    return card;
}

static void write_card(const Card *card, char text[CARD_MAX]) {
    snprintf(text, CARD_MAX, "%d %s %s %s %d %llu %s", card->world_size, card->host, card->boot_id,
             card->pid_namespace, card->pid, card->stamp, card->gpu);
}

static bool parse_card(const char *text, Card *card) {
    return sscanf(text, "%d %71s %47s %47s %d %llu %191s", &card->world_size, card->host,
                  card->boot_id, card->pid_namespace, &card->pid, &card->stamp, card->gpu) == 7;
}

// ---- Waiting and publishing

static double left_s(const Meeting *m) {
    uint64_t now = clock_ns();
    return now < m->deadline_ns ? (double)(m->deadline_ns - now) * 1e-9 : 0.0;
}

// Waits for the key until the meeting's deadline plus grace_s, and reads it as a string.
static int read_key(Meeting *m, const char *key, double grace_s, char *text, size_t capacity,
                    Error *err) {
    size_t bytes = capacity - 1;
    if (store_wait(m->store, key, left_s(m) + grace_s, err) != 0) return -1;
    if (store_get(m->store, key, text, &bytes, err) != 0) return -1;
    text[bytes] = '\0';
    return 0;
}

// The first verdict under a key stands: "ok ..." or "error ...".
static int publish(Meeting *m, const char *key, const char *kind, const char *text, Error *err) {
    char mine[VERDICT_MAX], stands[VERDICT_MAX];
    snprintf(mine, sizeof mine, "%s %s", kind, text);
    if (store_compare_set(m->store, key, "", mine, stands, sizeof stands, err) != 0) return -1;
    if (strncmp(stands, "error ", 6) != 0) return 0;
    return error_set(err, STATUS_FAILED, "%s", stands + 6);
}

// Tells the others why this rank gives up. That this too may fail changes nothing.
static void publish_error(Meeting *m, const char *key, const Error *cause) {
    Error ignored = {0};
    (void)publish(m, key, "error", cause->message, &ignored);
}

// Reads a verdict. Rank 0 gives up at the deadline and then says who is missing: worth one second.
static int await_verdict(Meeting *m, const char *key, char *payload, size_t capacity, Error *err) {
    char text[VERDICT_MAX];
    if (read_key(m, key, 1.0, text, sizeof text, err) != 0) {
        return error_prefix(err, "waiting for rank 0");
    }
    if (strncmp(text, "error ", 6) == 0) return error_set(err, STATUS_FAILED, "%s", text + 6);
    if (strncmp(text, "ok ", 3) != 0 || strlen(text + 3) >= capacity) {
        return error_set(err, STATUS_FAILED, "rank 0 published something else: '%.80s'", text);
    }
    memcpy(payload, text + 3, strlen(text + 3) + 1);
    return 0;
}

// ---- Every rank: leaves its card

static int leave_card(Meeting *m, Error *err) {
    char key[32], mine[CARD_MAX], stands[CARD_MAX];
    Card card = my_card(m);
    write_card(&card, mine);
    snprintf(key, sizeof key, "rank/%d", m->me.rank);
    if (store_compare_set(m->store, key, "", mine, stands, sizeof stands, err) != 0) return -1;
    if (strcmp(stands, mine) == 0) return 0;
    Card other = {0};
    (void)parse_card(stands, &other);
    if (other.pid == card.pid && strcmp(other.host, card.host) == 0) {
        return error_set(err, STATUS_FAILED,
                         "rank %d: trying to initialize the default process group twice! (a store "
                         "is good for one group under one prefix: make others with "
                         "pg_new_subgroup)",
                         m->me.rank);
    }
    error_set(err, STATUS_USAGE, "two processes say that they are rank %d: pid %d on %s and pid %d",
              m->me.rank, other.pid, other.host, card.pid);
    publish_error(m, "plan", err);
    return -1;
}

// ---- Rank 0: reads the cards, decides

// "ranks 2, 5 of 8 have not come within 30 s"
static int fail_missing(Meeting *m, const char *stage, Error *err) {
    char list[256] = "", key[32];
    int missing = 0;
    for (int r = 1; r < m->me.world_size; r++) {
        Error ignored = {0};
        snprintf(key, sizeof key, "%s/%d", stage, r);
        if (store_wait(m->store, key, 0, &ignored) == 0) continue;
        size_t used = strlen(list);
        if (missing < MISSING_SHOWN) {
            snprintf(list + used, sizeof list - used, "%s%d", missing ? ", " : "", r);
        } else if (missing == MISSING_SHOWN) {
            snprintf(list + used, sizeof list - used, ", ...");
        }
        missing++;
    }
    return error_set(err, STATUS_FAILED, "rank%s %s of %d ha%s not come within %g s",
                     missing == 1 ? "" : "s", list, m->me.world_size, missing == 1 ? "s" : "ve",
                     m->timeout_s);
}

// Can they share memory?
static int check_system(const Meeting *m, int rank, const Card *mine, const Card *theirs,
                        Error *err) {
    bool same_system = strcmp(theirs->boot_id, mine->boot_id) == 0 &&
                       strcmp(theirs->pid_namespace, mine->pid_namespace) == 0;
    if (same_system && strcmp(theirs->host, mine->host) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "backend shm needs all ranks in one system: rank %d is on %s, rank %d on %s%s",
                     m->me.rank, mine->host, rank, theirs->host,
                     strcmp(theirs->host, mine->host) == 0 ? " in another container" : "");
}

// cards: [rank + 1], and all before the last are checked.
static int check_gpu(const Card *cards, int rank, Error *err) {
    for (int other = 0; other < rank; other++) {
        if (strcmp(cards[other].gpu, cards[rank].gpu) != 0) continue;
        return error_set(err, STATUS_USAGE,
                         "ranks %d and %d share a GPU, %s: start one rank per GPU (ddprun "
                         "--nproc-per-node gpu), or, for correctness only, ddprun --fake-hosts",
                         other, rank, cards[rank].gpu);
    }
    return 0;
}

static int check_card(const Meeting *m, const Card *cards, int rank, Error *err) {
    const Card *mine = &cards[0], *theirs = &cards[rank];
    if (theirs->world_size != mine->world_size)
        return error_set(err, STATUS_USAGE, "WORLD_SIZE is %d at rank %d and %d at rank %d",
                         mine->world_size, m->me.rank, theirs->world_size, rank);
    bool nccl = strcmp(mine->gpu, NO_GPU) != 0, theirs_nccl = strcmp(theirs->gpu, NO_GPU) != 0;
    if (nccl != theirs_nccl)
        return error_set(err, STATUS_USAGE, "the backend is %s at rank %d and %s at rank %d",
                         nccl ? "nccl" : "shm", m->me.rank, theirs_nccl ? "nccl" : "shm", rank);
    return nccl ? check_gpu(cards, rank, err) : check_system(m, rank, mine, theirs, err);
}

// Waits for what rank r says under "stage/r", but no longer than until another rank gives up.
static int await_rank(Meeting *m, const char *stage, int r, char *text, size_t capacity,
                      Error *err) {
    char key[32], plan[VERDICT_MAX];
    snprintf(key, sizeof key, "%s/%d", stage, r);
    for (;;) {
        Error late = {0};
        double left = left_s(m);
        if (store_wait(m->store, key, left < LOOK_UP_S ? left : LOOK_UP_S, &late) == 0) {
            return read_key(m, key, 0, text, capacity, err);
        }
        // No plan equals "-", so this only reads; a missing one reads as "".
        if (store_compare_set(m->store, "plan", "-", "-", plan, sizeof plan, err) != 0) return -1;
        if (strncmp(plan, "error ", 6) == 0) {
            return error_set(err, STATUS_FAILED, "%s", plan + 6);
        }
        if (left <= 0) return fail_missing(m, stage, err);
    }
}

static int read_card(Meeting *m, int r, Card *card, Error *err) {
    char text[CARD_MAX];
    if (await_rank(m, "rank", r, text, sizeof text, err) != 0) return -1;
    if (parse_card(text, card)) return 0;
    return error_set(err, STATUS_FAILED, "rank %d left '%.80s' as its card", r, text);
}

static int gather_cards(Meeting *m, Error *err) {
    Card *cards = memory_zalloc((size_t)m->me.world_size * sizeof *cards);
    int status = 0;
    cards[0] = my_card(m);
    for (int r = 1; r < m->me.world_size && status == 0; r++) {
        status = read_card(m, r, &cards[r], err);
        if (status == 0) status = check_card(m, cards, r, err);
    }
    free(cards);
    return status;
}

static int await_attached(Meeting *m, Error *err) {
    for (int r = 1; r < m->me.world_size; r++) {
        char text[VERDICT_MAX];
        if (await_rank(m, "attached", r, text, sizeof text, err) != 0) return -1;
        if (strncmp(text, "error ", 6) == 0) {
            return error_set(err, STATUS_FAILED, "rank %d cannot attach: %s", r, text + 6);
        }
    }
    return 0;
}

static int make_address(Meeting *m, Error *err) {
    return m->device ? pg_nccl_create(m->address, err)
                     : pg_shm_create(m->me.world_size, &m->segment, m->address, err);
}

static int lead(Meeting *m, Error *err) {
    if (gather_cards(m, err) != 0 || make_address(m, err) != 0) {
        publish_error(m, "plan", err);
        return -1;
    }
    if (publish(m, "plan", "ok", m->address, err) != 0) return -1;
    if (await_attached(m, err) != 0) {
        publish_error(m, "go", err);
        return -1;
    }
    return publish(m, "go", "ok", "", err);
}

// ---- The other ranks

static int follow(Meeting *m, Error *err) {
    char nothing[VERDICT_MAX], key[32];
    if (await_verdict(m, "plan", m->address, sizeof m->address, err) != 0) return -1;
    snprintf(key, sizeof key, "attached/%d", m->me.rank);
    if (!m->device) m->segment = pg_shm_attach(m->address, m->me.world_size, err);
    if (!m->device && !m->segment) {
        publish_error(m, key, err);
        return -1;
    }
    if (publish(m, key, "ok", "", err) != 0) return -1;
    return await_verdict(m, "go", nothing, sizeof nothing, err);
}

// ---- The meeting

static int serve(Meeting *m, int *port, const char *token, Error *err) {
    m->server = store_serve(m->me.master_addr, *port, token, err);
    if (!m->server) return -1;
    *port = store_server_port(m->server);
    return 0;
}

// file://: rank 0 serves wherever there is room; the token is in the file, for its owner.
static int find_store(Meeting *m, int *port, char token[STORE_TOKEN_MAX + 1], Error *err) {
    const Rendezvous *me = &m->me;
    uint64_t random[2];
    m->file = meeting_file_join(me->file_path, me->rank, me->world_size, m->deadline_ns, err);
    if (!m->file) return -1;
    if (me->rank != 0) return meeting_file_await(m->file, port, token, m->deadline_ns, err);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(err, STATUS_FAILED, "getrandom gave no random bytes");
    snprintf(token, STORE_TOKEN_MAX + 1, "%016jx%016jx", (uintmax_t)random[0],
             (uintmax_t)random[1]);
    *port = 0;
    if (serve(m, port, token, err) != 0) return -1;
    return meeting_file_publish(m->file, *port, token, m->deadline_ns, err);
}

// Connects to where the ranks meet, and serves it if that is this rank's part.
static Store *open_store(Meeting *m, Error *err) {
    const Rendezvous *me = &m->me;
    if (me->store) return store_clone(me->store, m->timeout_s, err);
    int port = me->master_port;
    char token[STORE_TOKEN_MAX + 1];
    memcpy(token, me->token, sizeof token);
    if (me->file_path[0]) {
        if (find_store(m, &port, token, err) != 0) return NULL;
    } else if (me->rank == 0 && !me->launcher_store && serve(m, &port, token, err) != 0) {
        return NULL;
    }
    return store_connect(me->master_addr, port, token, m->timeout_s, err);
}

static int meeting_open(Meeting *m, Error *err) {
    m->store = open_store(m, err);
    if (!m->store) return -1;
    char prefix[32]; // ranks of an attempt that has ended left their keys behind
    snprintf(prefix, sizeof prefix, "attempt_%d", m->me.restart_count);
    store_add_prefix(m->store, prefix);
    return leave_card(m, err);
}

// The rank that serves the store stays until the others have read their last answer: also after an
// error, which it must not take away with it, but then only for a moment. The others stay until it
// hangs up, if it does so soon: their next meeting at this address must not find the rest of this
// one.
static void part(Meeting *m, double patience_s) {
    Error ignored = {0};
    int64_t gone = 0;
    int others = m->me.world_size - 1;
    if (m->me.launcher_store || m->me.store || others == 0) return; // others serve the store
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

// The last rank that leaves a group of NCCL's.
static void leave_group(void *meeting) {
    meeting_close(meeting, PART_S);
}

// ---- Backends

static int check_shm(const char *backend, const Device *device, Error *err) {
    if (!device || device->kernels->host_memory) return 0;
    if (strcmp(backend, "auto") == 0) // there is no NCCL
        return error_set(err, STATUS_SKIPPED, "%s needs backend nccl, which is not built in",
                         device->name);
    return error_set(err, STATUS_USAGE,
                     "backend shm cannot reach the memory of %s: use --backend nccl", device->name);
}

// Which backend? *nccl: that, not shm.
static int choose_backend(const char *backend, const Device *device, bool *nccl, Error *err) {
    bool is_auto = strcmp(backend, "auto") == 0, on_gpu = device && !device->kernels->host_memory;
    *nccl = strcmp(backend, "nccl") == 0 || (is_auto && on_gpu && pg_nccl_built());
    if (strcmp(backend, "shm") == 0 || (is_auto && !*nccl)) return check_shm(backend, device, err);
    if (!*nccl)
        return error_set(err, STATUS_USAGE, "unknown backend '%s': known are auto, shm, nccl",
                         backend);
    if (!pg_nccl_built()) return error_set(err, STATUS_SKIPPED, "backend nccl is not built in");
    if (on_gpu) return 0;
    return error_set(err, STATUS_USAGE, "backend nccl is for GPUs: use --device cuda, not %s",
                     device ? device->name : "the host's memory");
}

// Makes the group when all have come. With NCCL it keeps the meeting, and *kept is true.
static ProcessGroup *make_group(Meeting *m, bool *kept, Error *err) {
    if (!m->device) {
        PgShmSegment *segment = m->segment;
        m->segment = NULL;
        return pg_shm_open(segment, m->me.rank, m->timeout_s, err);
    }
    Store *store = store_clone(m->store, m->timeout_s < STORE_S ? m->timeout_s : STORE_S, err);
    if (!store) return NULL;
    const PgNcclPlace place = {.address = m->address,
                               .device = m->device,
                               .rank = m->me.rank,
                               .world = m->me.world_size,
                               .timeout_s = m->timeout_s,
                               .store = store,
                               .leave = leave_group,
                               .context = m};
    ProcessGroup *group = pg_nccl_open(&place, err);
    *kept = group != NULL;
    return group;
}

// Meets the others and makes the group. On failure the group is NULL and err filled.
static ProcessGroup *meet(Meeting *m, Error *err) {
    bool kept = false;
    ProcessGroup *group = NULL;
    if (meeting_open(m, err) == 0 && (m->me.rank == 0 ? lead(m, err) : follow(m, err)) == 0)
        group = make_group(m, &kept, err);
    if (kept) return group;
    segment_release(m->segment);
    meeting_close(m, group ? left_s(m) + 0.1 : 0.5);
    return group;
}

// What the environment asks for in observability. On failure the group is closed.
static int observe(ProcessGroup *group, DebugLevel level, double timeout_s, Error *err) {
    int rank = pg_rank(group);
    if (level >= DEBUG_INFO)
        fprintf(stderr, "rank %d of %d (pid %d): group over %s, timeout %g s\n", rank,
                pg_size(group), (int)getpid(), pg_backend(group), timeout_s);
    if (pg_set_flight(group, getenv("DDPC_FLIGHT_DIR"), getenv("DDPC_FLIGHT_PIPE"),
                      level == DEBUG_DETAIL, err) == 0)
        return 0;
    pg_close(group);
    return error_prefix(err, "rank %d", rank);
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

ProcessGroup *init_process_group(const char *backend, const Rendezvous *rendezvous, Device *device,
                                 double timeout_s, Error *err) {
    DebugLevel level;
    bool nccl;
    char gpu[PG_NCCL_CARD_MAX] = "";
    if (choose_backend(backend, device, &nccl, err) != 0) return NULL;
    if (nccl && pg_nccl_card(device, rendezvous->rank, gpu, err) != 0) return NULL;
    if (heartbeat_check(rendezvous->local_rank, err) != 0) return NULL;
    Heartbeat *heartbeat = heartbeat_open(rendezvous->local_rank);
    heartbeat_phase(heartbeat, "init"); // stands in the launcher's page until the next one
    heartbeat_close(heartbeat);
    if (debug_level_read(&level, err) != 0) return NULL;
    Meeting *m = memory_zalloc(sizeof *m);
    m->me = *rendezvous;
    m->timeout_s = timeout_s;
    m->deadline_ns = clock_ns() + (uint64_t)(timeout_s * 1e9);
    m->device = nccl ? device : NULL;
    snprintf(m->gpu, sizeof m->gpu, "%s", nccl ? gpu : NO_GPU);
    ProcessGroup *group = meet(m, err);
    return group && observe(group, level, timeout_s, err) != 0 ? NULL : group;
}

int init_thread_groups(int world, double timeout_s, ProcessGroup **groups, Error *err) {
    return pg_shm_threads(world, timeout_s, groups, err);
}
