/* safetensors.h: files of named tensors, readable by PyTorch, JAX and NumPy.
 *
 * Layout: a little-endian u64 N, N bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, ...,
 * "__metadata__": {string: string}}, then the tensors' bytes, contiguous. Written atomically. Read
 * with every size checked: a hostile file is rejected with one line.
 *
 * The metadata of files written here begins with "crc32": eight hexadecimal digits, the CRC-32 of
 * the header (with zeros for the digits) and of the tensors' bytes, which detects any changed bit.
 * Files without "crc32" (PyTorch's) are read without that check. Functions that return an int
 * return 0, or -1 with err filled.
 */
#ifndef COMMON_TENSOR_FILES_SAFETENSORS_H
#define COMMON_TENSOR_FILES_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/nn/module.h"

enum {
    SAFE_DIGITS = 8, // of "crc32"
    SAFE_TENSORS_MAX = 65536,
    SAFE_HEADER_MAX = 16 << 20, // bytes: some 250 per tensor
};

typedef struct SafeEntry {
    char name[160];
    DType dtype;
    int ndim;
    size_t shape[TENSOR_MAX_DIMS];
    const void *data; // host memory
    size_t bytes;
} SafeEntry;

typedef struct SafeMeta {
    char key[64];
    char value[256];
} SafeMeta;

typedef struct SafeTensors {
    SafeEntry *entries;
    size_t count;
    SafeMeta *meta; // safetensors_write adds "crc32"
    size_t meta_count;
    void *buffer; // of a file that was read: holds the entries' data
} SafeTensors;

// Writes a file. Entries are in the given order, 8-byte types first.
int safetensors_write(const char *path, const SafeTensors *content, Error *err);
// Sets digits to the checksum that safetensors_write writes.
void safetensors_checksum(const SafeTensors *content, char digits[SAFE_DIGITS + 1]);
// Reads the whole file. Errors: a wrong "crc32", dtypes other than F32 and I64, overlaps, holes,
// offsets outside the file, duplicate names, more than 4 dimensions, a header of more than
// SAFE_HEADER_MAX bytes or SAFE_TENSORS_MAX tensors. Uses at most 200 MB besides the tensors'
// bytes.
int safetensors_read(const char *path, SafeTensors *content, Error *err);
// Like safetensors_read, without the tensors' bytes (data is NULL) and without verifying the
// checksum.
int safetensors_read_header(const char *path, SafeTensors *content, Error *err);
void safetensors_free(SafeTensors *content); // of a file that was read
const SafeEntry *safetensors_find(const SafeTensors *content, const char *name); // or NULL
const char *safetensors_meta(const SafeTensors *content, const char *key);       // or NULL
// Returns the position of the digits of "crc32" in a header's text; NULL if it has none.
char *safetensors_find_digits(char *header, size_t length);

// Writes a module's state (parameters and buffers) by PyTorch's names; shared weights under each of
// their names.
int safetensors_save_module(const char *path, Module *module, const SafeMeta *meta,
                            size_t meta_count, Error *err);
// As safetensors_save_module or, if grads, safetensors_save_grads, of a module whose parameters are
// shards: `whole` has each whole tensor as "model/NAME", and the file's metadata.
int safetensors_save_whole(const char *path, Module *module, bool grads, const SafeTensors *whole,
                           Error *err);
#define SAFE_MODEL "model/"
// Loads strictly, as load_state_dict: the file must hold exactly the module's tensors, with their
// shapes and dtypes. The error names the first missing, unexpected or differing tensor; the module
// is then unchanged. Shared weights may have any of their names, or several with equal values.
int safetensors_load_module(const char *path, Module *module, Error *err);
// As safetensors_load_module, after removing `prefix` from names that begin with it (PyTorch's
// consume_prefix_in_state_dict_if_present). A prefix of no name is an error; NULL: none. A GPT also
// loads a GPT-2 saved by transformers (safetensors_convert_gpt2).
int safetensors_load_stripped(const char *path, const char *prefix, Module *module, Error *err);
// Converts a GPT-2 saved by Hugging Face's transformers, in place, to the names and layouts of our
// GPT (nn/gpt.h). Any other file stays unchanged. A mixture is an error.
int safetensors_convert_gpt2(SafeTensors *content, const char *path, Error *err);
// The two halves of safetensors_load_module, for a file in memory: the check, and the copy, which
// cannot fail after it.
int safetensors_check_module(const SafeTensors *content, const char *path, Module *module,
                             Error *err);
void safetensors_apply_module(const SafeTensors *content, Module *module);
// Writes the defined gradients of a module, by the parameters' names.
int safetensors_save_grads(const char *path, Module *module, Error *err);

#endif
