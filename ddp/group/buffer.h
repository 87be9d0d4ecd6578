/* buffer.h: arithmetic on buffers whose element size is known at run time only. */
#ifndef DDP_GROUP_BUFFER_H
#define DDP_GROUP_BUFFER_H

#include <stddef.h>
#include <string.h>

// The address of element `element`; the buffer may be NULL if no byte of it is accessed.
static inline void *buffer_at(const void *buffer, size_t element, size_t element_bytes) {
    return (unsigned char *)buffer + element * element_bytes;
}

// Copies bytes. The source may equal the target (a collective in place); both may be NULL for 0.
static inline void buffer_copy(void *to, const void *from, size_t bytes) {
    if (bytes > 0 && to != from) memmove(to, from, bytes);
}

#endif
