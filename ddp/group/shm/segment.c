/* segment.c: memory that several processes map. See segment.h.
 *
 * Another process opens it as /proc/PID/fd/N while its creator keeps descriptor N open. That
 * requires the same user and the same PID namespace, which the ranks of a job share.
 */
#include "ddp/group/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/memory.h"

enum { HUGE_PAGE_BYTES = 2 * 1024 * 1024 };

size_t segment_whole_pages(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes == 0 ? page : (bytes + page - 1) / page * page;
}

// Maps fd and takes it, also on failure.
static PgShmSegment *segment_map(int fd, size_t bytes, Error *err) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        error_set(err, STATUS_FAILED, "cannot map %zu bytes of shared memory: %s", bytes,
                  strerror(errno));
        close(fd);
        return NULL;
    }
    // Huge pages save page-table walks; without them everything works.
    if (bytes >= HUGE_PAGE_BYTES) madvise(base, bytes, MADV_HUGEPAGE);
    PgShmSegment *segment = memory_zalloc(sizeof *segment);
    *segment = (PgShmSegment){
        .base = base, .bytes = bytes, .fd = fd, .mutex = PTHREAD_MUTEX_INITIALIZER, .users = 1};
    return segment;
}

PgShmSegment *segment_create(size_t bytes, Error *err) {
    int fd = memfd_create("ddp.c", MFD_CLOEXEC);
    if (fd < 0) return error_null(err, STATUS_FAILED, "memfd_create: %s", strerror(errno));
    if (ftruncate(fd, (off_t)bytes)) {
        char why[FILE_CAUSE_ROOM];
        error_set(err, STATUS_FAILED, "cannot make %zu bytes of shared memory: %s", bytes,
                  file_cause(errno, why));
        close(fd);
        return NULL;
    }
    return segment_map(fd, bytes, err);
}

PgShmSegment *segment_open(int pid, int fd, size_t bytes, Error *err) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    if (mine < 0)
        return error_null(
            err, STATUS_FAILED,
            "cannot open the shared memory of process %d (%s: %s): ranks must run on one host, "
            "as one user, in one PID namespace",
            pid, path, strerror(errno));
    struct stat status = {0};
    (void)fstat(mine, &status); // after a failure it is no regular file
    size_t found = (size_t)status.st_size;
    if (!S_ISREG(status.st_mode) || found == 0 || (bytes && found != bytes)) {
        close(mine);
        return error_null(err, STATUS_FAILED, "%s is not the shared memory that was announced",
                          path);
    }
    PgShmSegment *segment = segment_map(mine, found, err);
    if (segment) segment_seal(segment); // other processes open the creator's descriptor
    return segment;
}

PgShmSegment *segment_share(PgShmSegment *segment) {
    pthread_mutex_lock(&segment->mutex);
    segment->users++;
    pthread_mutex_unlock(&segment->mutex);
    return segment;
}

void segment_seal(PgShmSegment *segment) {
    if (segment->fd >= 0) close(segment->fd);
    segment->fd = -1;
}

void segment_announce(PgShmSegment *group, PgShmSegment *announced) {
    segment_release(group->announced);
    group->announced = announced ? segment_share(announced) : NULL;
}

void segment_release(PgShmSegment *segment) {
    if (!segment) return;
    pthread_mutex_lock(&segment->mutex);
    int left = --segment->users;
    pthread_mutex_unlock(&segment->mutex);
    if (left > 0) return;
    segment_announce(segment, NULL);
    segment_seal(segment);
    munmap(segment->base, segment->bytes);
    CHECK(pthread_mutex_destroy(&segment->mutex) == 0, "the segment's mutex is held");
    free(segment);
}

// ---- blocks ------------------------------------------------------------------------------------

SharedBlocks *blocks_add(SharedBlocks **list, SharedBlocks blocks) {
    SharedBlocks *added = memory_zalloc(sizeof *added);
    *added = blocks;
    added->next = *list;
    *list = added;
    return added;
}

void *blocks_own(const SharedBlocks *blocks) {
    return blocks->base + (size_t)blocks->rank * blocks->stride;
}

const SharedBlocks *blocks_find(const SharedBlocks *list, const void *buffer, size_t bytes) {
    const uintptr_t begin = (uintptr_t)buffer;
    for (const SharedBlocks *b = list; b; b = b->next) {
        const uintptr_t first = (uintptr_t)blocks_own(b);
        if (begin >= first && begin - first < b->stride && bytes <= b->stride - (begin - first))
            return b;
    }
    return NULL;
}

size_t blocks_offset(const SharedBlocks *blocks, const void *buffer) {
    return (size_t)((const unsigned char *)buffer - (unsigned char *)blocks_own(blocks));
}

void *blocks_peer(const SharedBlocks *blocks, const void *buffer, int rank) {
    return blocks->base + (size_t)rank * blocks->stride + blocks_offset(blocks, buffer);
}

void blocks_free(SharedBlocks **list) {
    while (*list) {
        SharedBlocks *first = *list;
        *list = first->next;
        if (!first->segment) free(first->base);
        segment_release(first->segment);
        free(first);
    }
}
