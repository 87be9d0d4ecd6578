/* safetensors_text.h: checks of a file's first bytes and of its header's text before it is parsed.
 * For safetensors_read.c. Functions return 0, or -1 with err filled.
 */
#ifndef COMMON_TENSOR_FILES_SAFETENSORS_TEXT_H
#define COMMON_TENSOR_FILES_SAFETENSORS_TEXT_H

#include <stddef.h>

#include "common/base/error.h"

// Recognizes other formats of weights by the file's first `count` bytes: the error names the format
// and how to convert it. Returns 0 for an unknown format.
int safetensors_check_foreign(const unsigned char *first, size_t count, Error *err);

// Checks that the text can be parsed in bounded memory (number of tensors and values), and has no
// raw control character in a string (a zero would end a C string). Precondition: a NUL follows the
// text.
int safetensors_check_text(const char *header, size_t length, Error *err);

#endif
