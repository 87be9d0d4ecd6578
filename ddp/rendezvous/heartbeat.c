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
#include "common/base/format.h"
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
static void *map_board(const char *text, int local_rank, size_t *bytes) {
    uint64_t fd;
    struct stat about;
    if (!format_read_number(&text, 1 << 20, &fd) || *text || fd < 3) return NULL;
    if (fstat((int)fd, &about) != 0) return NULL;
    *bytes = (size_t)about.st_size;
    void *page = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
    if (page == MAP_FAILED) return NULL;
    const Header *header = page;
    bool ours = header->magic == HEARTBEAT_MAGIC && header->ranks < *bytes &&
                page_bytes(header->ranks) == *bytes && local_rank >= 0 &&
                (uint64_t)local_rank < header->ranks;
    if (ours) return page;
    munmap(page, *bytes);
    return NULL;
}

int heartbeat_open(int local_rank, Heartbeat **heartbeat, Error *err) {
    const char *text = getenv("DDPRUN_HEARTBEAT");
    size_t bytes = 0;
    void *page = text ? map_board(text, local_rank, &bytes) : NULL;
    *heartbeat = NULL;
    if (!text) return 0;
    if (!page)
        return error_set(
            err, STATUS_USAGE,
            "DDPRUN_HEARTBEAT is '%s', which is no heartbeat page of a ddprun with a local "
            "rank %d (unset it to run without)",
            text, local_rank);
    *heartbeat = memory_zalloc(sizeof **heartbeat);
    **heartbeat = (Heartbeat){page, bytes, line_of(page, local_rank)};
    return 0;
}

void heartbeat_enter(void *heartbeat, const char *phase, uint64_t step) {
    Line *line = ((Heartbeat *)heartbeat)->line;
    line->step = step;
    write_name(line->phase, phase);
    line->step_ns = clock_ns();
}

void heartbeat_collective(void *heartbeat, uint64_t sequence, const char *kind) {
    Line *line = ((Heartbeat *)heartbeat)->line;
    write_name(line->kind, kind);
    line->sequence = sequence;
    line->sequence_ns = clock_ns();
}

void heartbeat_culprit(void *heartbeat) {
    ((Heartbeat *)heartbeat)->line->culprit = 1;
}

void heartbeat_close(void *heartbeat) {
    Heartbeat *h = heartbeat;
    munmap(h->page, h->bytes);
    free(h);
}

// ---- The launcher's side

int heartbeat_board_open(HeartbeatBoard *board, int ranks, Error *err) {
    const size_t bytes = page_bytes((uint64_t)ranks);
    void *page = MAP_FAILED;
    int fd = memfd_create("ddprun-heartbeat", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        error_set(err, STATUS_FAILED, "cannot make the page for heartbeats: %s", strerror(errno));
        if (fd >= 0) close(fd);
        return -1;
    }
    *(Header *)page = (Header){.magic = HEARTBEAT_MAGIC, .ranks = (uint64_t)ranks};
    *board = (HeartbeatBoard){.fd = fd, .bytes = bytes, .page = page};
    return 0;
}

void heartbeat_board_clear(HeartbeatBoard *board) {
    memset(line_of(board->page, 0), 0, board->bytes - sizeof(Header));
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
    if (!board->page) return;
    munmap(board->page, board->bytes);
    close(board->fd);
}
