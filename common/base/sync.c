/* sync.c: waiting for a word to advance: spin first, then block in a futex.
 *
 * Spinning is cheapest for a peer that is about to finish: a wake-up through the kernel costs some
 * 50 us. Blocking is better for a peer that is late or has no core to run on. The spin loop never
 * calls sched_yield: another computing thread on that core would keep it for its time slice, some
 * milliseconds, whereas a woken thread is scheduled at once (cores.h).
 *
 * No wake-up is lost. The waiter increments `sleepers` and then loads `value`; the writer stores
 * `value` and then loads `sleepers`. Both are sequentially consistent, so at least one of the two
 * sees the other's store, and the kernel compares `value` again before it blocks the waiter. The
 * futex wait is nevertheless cut into slices: the waiter then notices the abort flag, and a writer
 * that died between its store and its wake-up.
 */
#include "common/base/sync.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"

enum {
    SPINS_PER_CLOCK = 100, // spins between two checks of the deadline
    SLICE_NS = 50 * 1000 * 1000,
    // sync_back_off: a short wait only yields, because the shortest sleep takes 60 us, in which a
    // GPU with one step of a small model in its queue runs dry.
    YIELD_NS = 300 * 1000,
    LONGEST_SLEEP_NS = 1000 * 1000,
};

static inline void spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// No FUTEX_PRIVATE_FLAG: the sleepers may be other processes that map the same memory.
void sync_wake(SyncWord *word) {
    if (atomic_load_explicit(&word->sleepers, memory_order_seq_cst) != 0)
        syscall(SYS_futex, &word->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void sync_store(SyncWord *word, uint32_t value) {
    atomic_store_explicit(&word->value, value, memory_order_seq_cst);
    sync_wake(word);
}

uint32_t sync_load(const SyncWord *word) {
    return atomic_load_explicit(&word->value, memory_order_acquire);
}

bool sync_claim(SyncWord *word, uint32_t expected, uint32_t value) {
    bool claimed = atomic_compare_exchange_strong_explicit(
        &word->value, &expected, value, memory_order_seq_cst, memory_order_acquire);
    if (claimed) sync_wake(word);
    return claimed;
}

static bool reached(uint32_t value, uint32_t target) {
    return (int32_t)(value - target) >= 0;
}

static bool aborted(const SyncWord *abort_flag) {
    return abort_flag && sync_load(abort_flag) != 0;
}

// The result of a wait that ends early. The word is loaded again: it may have reached its target
// between the load before and the abort, by a peer that has left the collective and then failed.
static SyncResult early(const SyncWord *word, uint32_t target, SyncResult result) {
    return reached(sync_load(word), target) ? SYNC_DONE : result;
}

static SyncResult sleep_until(SyncWord *word, uint32_t target, const SyncWord *abort_flag,
                              uint64_t deadline_ns) {
    for (;;) {
        uint32_t seen = atomic_load_explicit(&word->value, memory_order_seq_cst);
        if (reached(seen, target)) return SYNC_DONE;
        if (aborted(abort_flag)) return early(word, target, SYNC_ABORTED);
        uint64_t now = clock_ns();
        if (now >= deadline_ns) return early(word, target, SYNC_TIMEOUT);
        // Blocks while value == seen, for one slice. EAGAIN, EINTR and ETIMEDOUT all mean: check
        // `value` again.
        const uint64_t ns = deadline_ns - now < SLICE_NS ? deadline_ns - now : SLICE_NS;
        const struct timespec slice = {.tv_nsec = (long)ns};
        syscall(SYS_futex, &word->value, FUTEX_WAIT, seen, &slice, NULL, 0);
    }
}

SyncResult sync_wait(SyncWord *word, uint32_t target, SyncWord *abort_flag, uint64_t deadline_ns,
                     int spins) {
    for (int spin = 1; spin <= spins; spin++) {
        if (reached(sync_load(word), target)) return SYNC_DONE;
        if (aborted(abort_flag)) return early(word, target, SYNC_ABORTED);
        spin_pause();
        if (spin % SPINS_PER_CLOCK == 0 && clock_ns() >= deadline_ns)
            return early(word, target, SYNC_TIMEOUT);
    }
    atomic_fetch_add_explicit(&word->sleepers, 1, memory_order_seq_cst);
    SyncResult result = sleep_until(word, target, abort_flag, deadline_ns);
    atomic_fetch_sub_explicit(&word->sleepers, 1, memory_order_seq_cst);
    return result;
}

void sync_back_off(uint64_t start_ns) {
    const uint64_t waited = clock_ns() - start_ns;
    if (waited < YIELD_NS) {
        sched_yield();
        return;
    }
    const long sleep = waited / 8 < LONGEST_SLEEP_NS ? (long)(waited / 8) : LONGEST_SLEEP_NS;
    nanosleep(&(struct timespec){.tv_nsec = sleep}, NULL);
}
