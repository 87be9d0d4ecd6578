/* relacy_c.h: C as the model checker reads it. Relacy is a C++ library: it runs each thread as a
 * fiber and chooses, at each atomic access, which thread runs next and which of the values that
 * C++11 allows a load returns. Included after the standard headers, whose names it redefines.
 *
 * | in the C sources      | here                                                               |
 * |-----------------------|--------------------------------------------------------------------|
 * | _Atomic(T)            | rl::atomic<T>                                                      |
 * | memory shared plainly | Cell<T>: two accesses without a happens-before are a data race     |
 * | futex                 | rl_futex, without a timeout: a lost wake-up is a deadlock          |
 * | pthread_mutex, _cond  | Relacy's; a wait has no timeout                                    |
 * | clock_ns              | 0: no deadline is ever reached                                     |
 */
#ifndef TESTS_WEAK_MEMORY_RELACY_C_H
#define TESTS_WEAK_MEMORY_RELACY_C_H

#include <relacy/relacy.hpp>
#include <relacy/stdlib/pthread.hpp>

#undef futex

#undef _Alignas
#define _Alignas(bytes)
#define _Atomic(T) rl::atomic<T>

#undef memory_order_relaxed
constexpr rl::memory_order memory_order_relaxed = rl::mo_relaxed;
#undef memory_order_acquire
constexpr rl::memory_order memory_order_acquire = rl::mo_acquire;
#undef memory_order_release
constexpr rl::memory_order memory_order_release = rl::mo_release;
#undef memory_order_acq_rel
constexpr rl::memory_order memory_order_acq_rel = rl::mo_acq_rel;
#undef memory_order_seq_cst
constexpr rl::memory_order memory_order_seq_cst = rl::mo_seq_cst;

typedef rl::atomic<uint32_t> Word;

static inline uint32_t atomic_load_explicit(const Word *word, rl::memory_order order) {
    return word->load(order, $);
}

static inline void atomic_store_explicit(Word *word, uint32_t value, rl::memory_order order) {
    word->store(value, order, $);
}

static inline uint32_t atomic_fetch_add_explicit(Word *word, uint32_t by, rl::memory_order order) {
    return word->fetch_add(by, order, $);
}

static inline uint32_t atomic_fetch_sub_explicit(Word *word, uint32_t by, rl::memory_order order) {
    return word->fetch_sub(by, order, $);
}

static inline bool atomic_compare_exchange_strong_explicit(Word *word, uint32_t *expected,
                                                           uint32_t value, rl::memory_order order,
                                                           rl::memory_order failed) {
    return word->compare_exchange_strong(*expected, value, order, $, failed, $);
}

// Set after an abort: the slice of 50 ms of every wait is then over, so no wait blocks. NULL: no
// slice ends, so that a lost wake-up is a deadlock.
static Word *slice_over;

// No spurious wake-ups, which would only repeat the caller's loop. The kernel compares and blocks
// in one atomic step.
static inline void futex(Word *word, int operation, uint32_t value) {
    rl::context &context = rl::ctx();
    context.sched();
    context.atomic_thread_fence_seq_cst();
    if (operation == rl::RL_FUTEX_WAKE) {
        word->wake(context, value, $);
        return;
    }
    uint32_t now, over;
    {
        rl::preemption_disabler disabler(context);
        now = word->load(rl::mo_acquire, $);
        over = slice_over ? slice_over->load(rl::mo_seq_cst, $) : 0;
    }
    if (now == value && !over) word->wait(context, false, false, $);
}

#define syscall(number, word, operation, value, timeout, word2, value3) \
    futex(word, operation, value)

static inline uint64_t clock_ns(void) {
    return 0;
}

#define pthread_mutex_t              rl::rl_pthread_mutex_t
#define pthread_cond_t               rl::rl_pthread_cond_t
#define pthread_mutex_lock(mutex)    rl::rl_pthread_mutex_lock(mutex, $)
#define pthread_mutex_unlock(mutex)  rl::rl_pthread_mutex_unlock(mutex, $)
#define pthread_cond_signal(cond)    rl::rl_pthread_cond_signal(cond, $)
#define pthread_cond_broadcast(cond) rl::rl_pthread_cond_broadcast(cond, $)
#undef pthread_cond_wait
#define pthread_cond_wait(cond, mutex)            rl::rl_pthread_cond_wait(cond, mutex, $)
#define pthread_cond_clockwait(cond, mutex, c, t) rl::rl_pthread_cond_wait(cond, mutex, $)

template <typename T> class Cell {
    rl::var<T> variable;

  public:
    Cell() { variable($).store(T()); }
    Cell(T value) { variable($).store(value); }
    Cell(const Cell &from) { variable($).store(from); }
    operator T() const { return variable($).load(); }
    Cell &operator=(T value) {
        variable($).store(value);
        return *this;
    }
    Cell &operator=(const Cell &from) { return *this = (T)from; }
    T operator->() const { return *this; }
    T operator++(int) {
        T before = *this;
        *this = before + 1;
        return before;
    }
};

#endif
