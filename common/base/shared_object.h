/* shared_object.h: modules that are loaded on first use. Code that would slow down every start and
 * is used on few machines is a shared object: the GPU code (common/device/cuda, ddp/group/nccl).
 *
 * A module exports one symbol, a table of functions. It contains its own copy of the code that it
 * uses of this project, which has no global state, so it needs no symbol of the loading program.
 */
#ifndef COMMON_BASE_SHARED_OBJECT_H
#define COMMON_BASE_SHARED_OBJECT_H

#include <stdbool.h>

#include "common/base/error.h"

// Loads the shared object `file` ("libddpc_cuda.so") until the program ends and returns the address
// of `symbol`. Searches the folder of the program or library that contains this code, its sibling
// folder lib (of the build or the installation), then the system's path. Returns NULL with err
// filled (STATUS_FAILED, the loader's message) if the file is not found or the first match cannot
// be loaded.
const void *shared_object_find(const char *file, const char *symbol, Error *err);

// Writes the folder of the program or shared library that contains this code, without a slash at
// its end. Returns false if it is unknown or longer than `capacity` bytes.
bool shared_object_own_folder(char *folder, size_t capacity);

#endif
