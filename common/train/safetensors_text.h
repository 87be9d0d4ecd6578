/* safetensors_text.h: what a file's first bytes and its header's text tell before it is parsed.
 * For safetensors_read.c.
 */
#ifndef COMMON_TRAIN_SAFETENSORS_TEXT_H
#define COMMON_TRAIN_SAFETENSORS_TEXT_H

#include <stddef.h>

#include "common/base/error.h"

// Weights of another format, by the file's first `count` bytes: an error that says which, and how
// they become a file of safetensors. 0: nothing that is known here.
int safetensors_check_foreign(const unsigned char *first, size_t count, Error *err);

// The text has few enough tensors and values to be parsed in bounded memory, and no string in it
// holds a zero or another raw control character, at which a C string would end. A NUL follows it.
int safetensors_check_text(const char *header, size_t length, Error *err);

#endif
