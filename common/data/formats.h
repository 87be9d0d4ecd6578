/* formats.h: the kinds of data that dataset_open reads or generates. Internal to common/data.
 *
 *   idx           MNIST's files, plain or gzipped: idx.c
 *   cifar         CIFAR-10's binary batches: cifar.c
 *   pixel_folder  pictures with a label for every pixel: pixel_folder.c
 *   shapes        generated pictures with a label for every pixel: shapes.c
 *   synthetic     samples of a random teacher: synthetic.c
 *   text          a text, or files of tokens: text.c
 */
#ifndef COMMON_DATA_FORMATS_H
#define COMMON_DATA_FORMATS_H

#include <zlib.h>

#include "common/data/dataset.h"

// Fills train and test except mean and std. name: the folder, the file, or the option's text
// ("shapes:32x32"). Returns 0, or -1 with err filled: one line that names the file and its fault.
// In both cases the caller closes the source.
typedef int OpenData(const char *name, const DataOptions *options, DataSource *source, Error *err);
OpenData idx_open, cifar_open, pixel_folder_open, shapes_open, synthetic_open;
OpenData text_open_file, text_open_tokens; // options->context is not 0

bool idx_present(const char *folder); // whether it has any of the four files
// Whether one of the six files is in the folder or its subfolder cifar-10-batches-bin.
bool cifar_present(const char *folder);
bool pixel_folder_present(const char *folder); // whether it has train or test
bool text_tokens_present(const char *folder);  // whether it has train.bin or val.bin

enum { SHAPES_BACKGROUND, SHAPES_CIRCLE, SHAPES_RECTANGLE, SHAPES_TRIANGLE, SHAPES_CLASSES };

// The sizes in the name of generated data: "NAME[:SIDExSIDE...[->OUTPUTS][@COUNT]]".
typedef struct DataSpec {
    size_t side[3], sides; // sides: how many were given, 1 to 3
    size_t outputs;        // 0: not given
    size_t count;
} DataSpec;

// Parses the text after the name's colon, or `fallback` if it has none. Each number is from 1 to
// 999,999,999; COUNT has a default. Returns false if the text has another form.
bool spec_parse(const char *name, const char *fallback, size_t count, DataSpec *spec);

// Opens a regular file, plain or gzipped. Sets *stored (may be NULL) to the file's size. Returns
// NULL with err filled.
gzFile gz_open(const char *path, size_t *stored, Error *err);
// Reads `bytes`; *got is less only at the end of the file. Returns 0, or -1 with err filled,
// without the path, if the gzip file is truncated or corrupt.
int gz_read(gzFile file, void *into, size_t bytes, size_t *got, Error *err);
// Reads to the end of the file, but at most `limit` bytes, into *bytes[*count], which grows with
// the bytes that were read. Returns as gz_read; in both cases the caller frees *bytes.
int gz_read_all(gzFile file, size_t limit, uint8_t **bytes, size_t *count, Error *err);
// Checks that nothing follows the gzip streams of a file that was read to its end, which gave
// `unpacked` bytes: zlib ignores trailing bytes. Returns as gz_read; 0 for a file without gzip. A
// heuristic: the last four bytes should be the size of the last stream, and a larger number than
// `unpacked` cannot be.
int gz_check_end(gzFile file, const char *path, size_t unpacked, Error *err);

#endif
