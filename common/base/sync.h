/* sync.h: how threads and processes wait for each other. No other file has atomics or futexes.
 *
 * Threads of one process can also wait with a mutex and a condition, which are pthread's own. A
 * SyncWord works between processes that map the same memory, too, because it holds no pointers.
 * Every wait for it has a deadline, and an abort flag ends it early.
 */
#ifndef COMMON_BASE_SYNC_H
#define COMMON_BASE_SYNC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { CACHE_LINE = 64 };

// One word that a writer advances and waiters watch: on its own cache line, so that watching it
// costs the others nothing.
typedef struct SyncWord {
    _Alignas(CACHE_LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers; // waiters inside the kernel; nobody is woken when it is 0
} SyncWord;

void sync_store(SyncWord *word, uint32_t value); // release; wakes the sleepers
// Wakes the sleepers of a word so that they look at their abort flag. Whoever sets an abort flag
// calls this for the words that others may be waiting on; waiters on other words notice in 50 ms.
void sync_wake(SyncWord *word);
uint32_t sync_load(const SyncWord *word); // acquire
// Stores `value` if the word is `expected`, in one step: of several that try, one succeeds, and
// wakes the sleepers. Returns false, and changes nothing, if the word was something else.
bool sync_claim(SyncWord *word, uint32_t expected, uint32_t value);

typedef enum SyncResult { SYNC_DONE, SYNC_TIMEOUT, SYNC_ABORTED } SyncResult;

// Waits until word's value is at or past `target` (as sequence numbers: (int32_t)(value - target)
// >= 0), or until `abort_flag` (may be NULL) is not 0, or until clock_ns() reaches deadline_ns.
// Looks `looks` times, and then sleeps in the kernel (futex, shared between processes) in slices.
SyncResult sync_wait(SyncWord *word, uint32_t target, SyncWord *abort_flag, uint64_t deadline_ns,
                     int looks);
// For a waiter with a core of its own as many looks as a wake-up takes, some 50 us. If there are
// more waiters than cores, the one waited for has to get one.
enum { SYNC_LOOKS = 2000, SYNC_LOOKS_CROWDED = 100 };

#endif
