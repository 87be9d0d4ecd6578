/* shared_object.h: parts of this program that are loaded when they are needed. What would slow down
 * every start, and is of use on few machines, is a shared object of its own: so is the code for
 * GPUs (common/device/cuda, ddp/group/nccl).
 *
 * Such a part gives the program one symbol, a table of functions. It has its own copies of whatever
 * it uses of this project (there is no state in which two copies could differ), so it asks nothing
 * of the program that loads it, whether that is ours or a user's.
 */
#ifndef COMMON_BASE_SHARED_OBJECT_H
#define COMMON_BASE_SHARED_OBJECT_H

#include <stdbool.h>

#include "common/base/error.h"

// The symbol of the shared object `file` ("libddpc_cuda.so"), which stays loaded until the program
// ends. It is looked for beside the program (or beside the library that holds this code), in the
// folder lib beside that one, where this build puts and installs it, and where the system looks.
// Returns NULL with err filled (STATUS_FAILED, in the loader's words) if it is nowhere, or if the
// first one that is there cannot be loaded.
const void *shared_object_find(const char *file, const char *symbol, Error *err);

// Writes the folder of the file that this code was loaded from, a program or a shared library,
// without a slash at its end. False if the system does not tell, or if it is too long.
bool shared_object_own_folder(char *folder, size_t room);

#endif
