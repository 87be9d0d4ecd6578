/* safetensors_text.h: what a file's first bytes and its header's text tell before it is parsed.
 * For safetensors_read.c.
 */
#ifndef COMMON_TRAIN_SAFETENSORS_TEXT_H
#define COMMON_TRAIN_SAFETENSORS_TEXT_H

#include <stddef.h>

#include "common/base/error.h"

// Recognizes weights of other formats by the file's first `count` bytes: returns -1 with an error
// that says which format it is, and how they become a file of safetensors. Returns 0 if it is no
// format that is known here.
int safetensors_check_foreign(const unsigned char *first, size_t count, Error *err);

// Checks that the text has few enough tensors and values to be parsed in bounded memory, and no raw
// control character in a string (a zero would end a C string). A NUL follows the text.
int safetensors_check_text(const char *header, size_t length, Error *err);

#endif
