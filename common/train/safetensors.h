/* safetensors.h: files of named tensors, readable by PyTorch, JAX and NumPy.
 *
 * Layout: a little-endian u64 N, N bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, ...,
 * "__metadata__": {string: string}}, then the tensors' bytes, packed without holes. Written whole
 * or not at all (base/file.h). Read with every size checked: a hostile file gets one clear line.
 *
 * The metadata of what is written here begins with "crc32": eight hexadecimal digits, the CRC-32 of
 * the header, with zeros in the digits' place, and of the tensors' bytes. One changed bit anywhere
 * in the file is found. A file without it (PyTorch's) is read all the same.
 */
#ifndef COMMON_TRAIN_SAFETENSORS_H
#define COMMON_TRAIN_SAFETENSORS_H

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
    SafeMeta *meta; // on writing without "crc32", which is added
    size_t meta_count;
    void *buffer; // what the entries' data points into, when read from a file
} SafeTensors;

// Writes a file. Entries are laid out in the order given (aligned types first). Returns 0, or -1
// with err filled.
int safetensors_write(const char *path, const SafeTensors *content, Error *err);
// The digits that safetensors_write would put into the file.
void safetensors_checksum(const SafeTensors *content, char digits[SAFE_DIGITS + 1]);
// Reads the whole file. A "crc32" that does not fit is an error. Other dtypes than F32 and I64
// are an error, as are overlaps, holes, offsets outside the file, duplicate names, more than 4
// dimensions, and a header of more than SAFE_HEADER_MAX bytes or SAFE_TENSORS_MAX tensors: reading
// it takes 200 MB at most besides the tensors' own bytes.
int safetensors_read(const char *path, SafeTensors *content, Error *err);
// As safetensors_read, but leaves the tensors' bytes, and so the checksum, alone: data is NULL.
int safetensors_read_header(const char *path, SafeTensors *content, Error *err);
void safetensors_free(SafeTensors *content); // of a file that was read
const SafeEntry *safetensors_find(const SafeTensors *content, const char *name); // or NULL
const char *safetensors_meta(const SafeTensors *content, const char *key);       // or NULL
// Where the digits of "crc32" stand in the text of a header; NULL if it has none.
char *safetensors_find_digits(char *header, size_t length);

// Writes a module's state (parameters and buffers) by PyTorch's names; shared weights are written
// under each of theirs.
int safetensors_save_module(const char *path, Module *module, const SafeMeta *meta,
                            size_t meta_count, Error *err);
// Loads strictly, as load_state_dict does: every tensor of the module must be in the file with its
// shape and dtype, and nothing else. The error names the first that is missing, unexpected or
// differs. Nothing is changed unless everything fits. Shared weights may be there under any of
// their names, and under several if the values are the same.
int safetensors_load_module(const char *path, Module *module, Error *err);
// As safetensors_load_module, for a file whose names may have `prefix` in front, which is left out
// where it is there (PyTorch's consume_prefix_in_state_dict_if_present). A prefix that no name has
// is an error. If prefix is NULL, nothing is left out.
int safetensors_load_stripped(const char *path, const char *prefix, Module *module, Error *err);
// The two halves of safetensors_load_module, for a file that was read already: the check, and the
// copying, which cannot fail after it.
int safetensors_check_module(const SafeTensors *content, const char *path, Module *module,
                             Error *err);
void safetensors_apply_module(const SafeTensors *content, Module *module);
// Writes the defined gradients of a module, by the parameters' names.
int safetensors_save_grads(const char *path, Module *module, Error *err);

#endif
