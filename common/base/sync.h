/* sync.h: how threads and processes wait for each other. No other file has atomics or futexes.
 *
 * A SyncWord synchronises threads, and processes that map the same memory: it holds no pointers.
 * Every wait has a deadline, and an abort flag ends it early. (Threads of one process can also use
 * pthread's mutex and condition.)
 */
#ifndef COMMON_BASE_SYNC_H
#define COMMON_BASE_SYNC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cache_line.h"

// A counter with one writer and any number of waiters, on its own cache line: spinning on it causes
// no traffic on other data.
typedef struct SyncWord {
    _Alignas(CACHE_LINE) _Atomic(uint32_t) value;
    _Atomic(uint32_t) sleepers; // waiters blocked in the kernel; a store wakes them
} SyncWord;

void sync_store(SyncWord *word, uint32_t value); // release; wakes the sleepers
// Wakes the sleepers of a word so that they check their abort flag. To be called after setting an
// abort flag, for the words with waiters; waiters on other words notice within 50 ms.
void sync_wake(SyncWord *word);
uint32_t sync_load(const SyncWord *word); // acquire
// Compare and exchange: stores `value` and wakes the sleepers if the word equals `expected`;
// otherwise returns false and leaves the word unchanged. Of concurrent callers one succeeds.
bool sync_claim(SyncWord *word, uint32_t expected, uint32_t value);

typedef enum SyncResult { SYNC_DONE, SYNC_TIMEOUT, SYNC_ABORTED } SyncResult;

// Waits until the word's value is at or past `target` (as sequence numbers: (int32_t)(value -
// target) >= 0), `abort_flag` (may be NULL) is not 0, or clock_ns() reaches deadline_ns. Spins
// `spins` times, then blocks in the kernel (futex, shared between processes). A word that reached
// its target before the flag was set, or before the deadline, is SYNC_DONE.
SyncResult sync_wait(SyncWord *word, uint32_t target, SyncWord *abort_flag, uint64_t deadline_ns,
                     int spins);
// SYNC_SPINS: a waiter with a core of its own spins for about the cost of a wake-up, 50 us.
// SYNC_SPINS_CROWDED: with more ranks than cores, the rank that is waited for needs the core.
enum { SYNC_SPINS = 2000, SYNC_SPINS_CROWDED = 100 };

// Between two polls of something that only can be polled, such as a CUDA event: yields the core for
// the first 300 us since start_ns, and then sleeps for an eighth of the time waited so far, 1 ms at
// most. So the wait is at most an eighth too long, and a long one leaves the core to others.
void sync_back_off(uint64_t start_ns);

#endif
