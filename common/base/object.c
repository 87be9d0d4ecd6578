/* object.c: a header before each object says its kind and whether it is open. */
#include "common/base/object.h"

#include <pthread.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/memory.h"

typedef struct Header {
    const char *kind;
    size_t bytes; // of the object
    bool open;
    struct Header *next; // in the list of closed objects
} Header;
_Static_assert(sizeof(Header) <= MEMORY_ALIGNMENT, "the object is aligned as its header");

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Header *closed_objects; // under mutex

static Header *header_of(const void *object) {
    return (Header *)((unsigned char *)object - MEMORY_ALIGNMENT);
}

// Returns a closed object of this kind, taken from the list, or NULL.
static Header *take_closed(const char *kind) {
    pthread_mutex_lock(&mutex);
    Header **at = &closed_objects;
    while (*at && strcmp((*at)->kind, kind) != 0) at = &(*at)->next;
    Header *header = *at;
    if (header) *at = header->next;
    pthread_mutex_unlock(&mutex);
    return header;
}

void *object_open(const char *kind, size_t bytes) {
    Header *header = take_closed(kind);
    if (!header) header = memory_zalloc(MEMORY_ALIGNMENT + bytes);
    *header = (Header){.kind = kind, .bytes = bytes, .open = true};
    return (unsigned char *)header + MEMORY_ALIGNMENT;
}

bool object_is_open(const void *object) {
    return header_of(object)->open;
}

void object_check_open(const void *object, const char *function) {
    CHECK(object_is_open(object), "%s: the %s is closed already", function,
          header_of(object)->kind);
}

void object_close(void *object) {
    Header *header = header_of(object);
    memset(object, 0, header->bytes);
    header->open = false;
    pthread_mutex_lock(&mutex);
    header->next = closed_objects;
    closed_objects = header;
    pthread_mutex_unlock(&mutex);
}
