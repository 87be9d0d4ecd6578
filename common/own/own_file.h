/* own_file.h: loads a user's own wrapper or all-reduce (train_dp --wrapper, train_ddp --wrapper and
 * --all-reduce, train_fsdp --wrapper): C source, which is compiled, or a shared object.
 *
 * A file defines one table of functions, whose symbol determines its kind:
 *
 *     symbol           contract                   loaded by
 *     own_dp           dp/own/own_dp.h            train_dp --wrapper FILE
 *     own_ddp          ddp/own/own_ddp.h          train_ddp --wrapper FILE
 *     own_fsdp         ddp/fsdp/own/own_fsdp.h    train_fsdp --wrapper FILE
 *     own_all_reduce   ddp/own/own_all_reduce.h   train_ddp --all-reduce FILE
 *
 * A file calls the public functions that the program exports (common/cmake/own.cmake). The symbols
 * that it needs are read before it is loaded, so a file that forwards to the built-in wrappers is
 * refused and none of its code runs.
 */
#ifndef COMMON_OWN_OWN_FILE_H
#define COMMON_OWN_OWN_FILE_H

#include "common/base/error.h"

// Returns the table of this symbol in FILE, valid until the program ends, or NULL with err filled
// (STATUS_USAGE): the file does not exist, does not compile (the compiler's first errors and the
// command), defines none, two or another of the symbols, needs a function that is not public, or
// its table has functions that are NULL or another version.
// size: of the table, an int version followed by functions.
const void *own_file_load(const char *path, const char *symbol, int version, size_t size,
                          Error *err);

// Fills err with "FILE: SYMBOL.FUNCTION failed and did not say why", unless it has an error.
int own_file_failed(const char *symbol, const char *function, Error *err);

// ---- own_compile.c, own_symbols.c -------------------------------------------------------------

// Compiles the C source `path` into the new shared object `object`. 0, or -1 with err filled.
int own_compile(const char *path, const char *object, Error *err);

// Checks the symbols of the shared object `object`; `path` names it in messages. 0, or -1 with err
// filled.
int own_symbols_check(const char *object, const char *path, const char *symbol, Error *err);

#endif
