/* heartbeat.c: see heartbeat.h.
 *
 * The page: a header, then a Line of two cache lines for each local rank. Each field has one
 * writer; the reader is another process, which only reports what it reads. So there are no locks,
 * and a rank killed at any point leaves a readable line: the last byte of each name is never
 * written. Fields are volatile so that the compiler neither delays nor drops a store that this
 * process never reads.
 */
#include "ddp/rendezvous/heartbeat.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"

#define HEARTBEAT_MAGIC 0x3261656270646464u // identifies a heartbeat page

typedef struct Line {
    volatile char phase[HEARTBEAT_NAME_MAX + 1];
    volatile uint64_t step;
    volatile uint64_t step_ns; // when phase or step were set
    volatile char kind[HEARTBEAT_NAME_MAX + 1];
    volatile uint64_t sequence;
    volatile uint64_t sequence_ns; // when the collective was set
    volatile uint64_t culprit;     // 0 or 1
    uint64_t unused[7];
} Line;

typedef struct Header {
    uint64_t magic, ranks;
    uint64_t unused[14];
} Header;

_Static_assert(sizeof(Line) == 128 && sizeof(Header) == 128, "a rank's line shares no cache line");

struct Heartbeat {
    void *page;
    size_t bytes;
    Line *line;
};

struct HeartbeatBoard {
    int fd, ranks;
    void *page;
    size_t bytes;
};

static size_t page_bytes(uint64_t ranks) {
    return sizeof(Header) + (size_t)ranks * sizeof(Line);
}

static Line *line_of(void *page, int local_rank) {
    return (Line *)((char *)page + page_bytes((uint64_t)local_rank));
}

// ---- The rank's side

static void write_name(volatile char to[HEARTBEAT_NAME_MAX + 1], const char *name) {
    for (size_t i = 0; i < HEARTBEAT_NAME_MAX; i++) {
        to[i] = *name;
        if (*name) name++;
    }
}

// DDPRUN_HEARTBEAT may be stale, so the descriptor is validated before use.
static bool is_board(const void *page, size_t bytes, int local_rank) {
    const Header *header = page;
    return header->magic == HEARTBEAT_MAGIC && header->ranks < bytes &&
           page_bytes(header->ranks) == bytes && local_rank >= 0 &&
           (uint64_t)local_rank < header->ranks;
}

static void *map_board(const char *text, int local_rank, size_t *bytes) {
    char *end = NULL;
    errno = 0;
    long fd = strtol(text, &end, 10);
    struct stat about;
    if (errno || *end || fd < 3 || fd > 1 << 20 || fstat((int)fd, &about) != 0) return NULL;
    if (!S_ISREG(about.st_mode) || about.st_size < (off_t)sizeof(Header)) return NULL;
    *bytes = (size_t)about.st_size;
    void *page = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
    if (page == MAP_FAILED) return NULL;
    if (is_board(page, *bytes, local_rank)) return page;
    munmap(page, *bytes);
    return NULL;
}

int heartbeat_check(int local_rank, Error *err) {
    const char *text = getenv("DDPRUN_HEARTBEAT");
    size_t bytes;
    void *page = text ? map_board(text, local_rank, &bytes) : NULL;
    if (page) munmap(page, bytes);
    if (page || !text) return 0;
    return error_set(
        err, STATUS_USAGE,
        "DDPRUN_HEARTBEAT is '%s', which is no heartbeat page of a ddprun with a local "
        "rank %d (unset it to run without)",
        text, local_rank);
}

Heartbeat *heartbeat_open(int local_rank) {
    const char *text = getenv("DDPRUN_HEARTBEAT");
    size_t bytes;
    void *page = text ? map_board(text, local_rank, &bytes) : NULL;
    if (!page) return NULL;
    Heartbeat *heartbeat = memory_zalloc(sizeof *heartbeat);
    *heartbeat = (Heartbeat){page, bytes, line_of(page, local_rank)};
    return heartbeat;
}

void heartbeat_phase(Heartbeat *heartbeat, const char *phase) {
    if (!heartbeat) return;
    write_name(heartbeat->line->phase, phase);
    heartbeat->line->step_ns = clock_ns();
}

void heartbeat_step(Heartbeat *heartbeat, uint64_t step) {
    if (!heartbeat) return;
    heartbeat->line->step = step;
    heartbeat->line->step_ns = clock_ns();
}

void heartbeat_collective(Heartbeat *heartbeat, uint64_t sequence, const char *kind) {
    if (!heartbeat) return;
    write_name(heartbeat->line->kind, kind);
    heartbeat->line->sequence = sequence;
    heartbeat->line->sequence_ns = clock_ns();
}

void heartbeat_culprit(Heartbeat *heartbeat) {
    if (heartbeat) heartbeat->line->culprit = 1;
}

void heartbeat_close(Heartbeat *heartbeat) {
    if (!heartbeat) return;
    munmap(heartbeat->page, heartbeat->bytes);
    free(heartbeat);
}

// ---- The launcher's side

HeartbeatBoard *heartbeat_board_open(int ranks, Error *err) {
    HeartbeatBoard *board = memory_zalloc(sizeof *board);
    *board = (HeartbeatBoard){.fd = -1, .ranks = ranks, .bytes = page_bytes((uint64_t)ranks)};
    board->page = MAP_FAILED;
    board->fd = memfd_create("ddprun-heartbeat", MFD_CLOEXEC);
    if (board->fd >= 0 && ftruncate(board->fd, (off_t)board->bytes) == 0)
        board->page = mmap(NULL, board->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, board->fd, 0);
    if (board->page == MAP_FAILED) {
        error_set(err, STATUS_FAILED, "cannot make the page for heartbeats: %s", strerror(errno));
        heartbeat_board_close(board);
        return NULL;
    }
    *(Header *)board->page = (Header){.magic = HEARTBEAT_MAGIC, .ranks = (uint64_t)ranks};
    return board;
}

int heartbeat_board_fd(const HeartbeatBoard *board) {
    return board->fd;
}

void heartbeat_board_clear(HeartbeatBoard *board) {
    memset((char *)board->page + sizeof(Header), 0, board->bytes - sizeof(Header));
}

static void read_name(char to[HEARTBEAT_NAME_MAX + 1], const volatile char *from) {
    for (size_t i = 0; i < HEARTBEAT_NAME_MAX; i++) {
        // Untrusted bytes of the rank, which are written to a terminal.
        to[i] = from[i] == '\0' || (from[i] > ' ' && from[i] < 127) ? from[i] : '?';
    }
    to[HEARTBEAT_NAME_MAX] = '\0';
}

HeartbeatView heartbeat_board_read(const HeartbeatBoard *board, int local_rank) {
    const Line *line = line_of(board->page, local_rank);
    HeartbeatView view = {
        .step = line->step, .sequence = line->sequence, .culprit = line->culprit != 0};
    read_name(view.phase, line->phase);
    read_name(view.kind, line->kind);
    uint64_t step_ns = line->step_ns, sequence_ns = line->sequence_ns;
    view.beat_ns = step_ns > sequence_ns ? step_ns : sequence_ns;
    return view;
}

void heartbeat_board_close(HeartbeatBoard *board) {
    if (!board) return;
    if (board->page != MAP_FAILED) munmap(board->page, board->bytes);
    if (board->fd >= 0) close(board->fd);
    free(board);
}
