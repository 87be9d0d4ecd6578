/* object.h: the memory of objects that a program opens and closes by itself (devices, tapes,
 * modules, optimizers, samplers, loaders). object_close keeps the memory, zeroed, for the next
 * object of its kind, so a second close, or a later call with the object, is found instead of
 * reading freed memory. (Once the next object of the kind has the memory, the old pointer stands
 * for it.)
 */
#ifndef COMMON_BASE_OBJECT_H
#define COMMON_BASE_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

// Returns zeroed memory for an object. kind: "tape", a literal; of one kind all have one size.
void *object_open(const char *kind, size_t bytes);
// Whether object_open returned this address and object_close has not taken it back.
bool object_is_open(const void *object);
// Begins an object's _close function: a failed CHECK in its name if the object is closed.
void object_check_open(const void *object, const char *function);
void object_close(void *object);

#endif
