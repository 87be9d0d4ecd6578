/* fiber.cpp: fibers with functions of the C library: makecontext gives a function a new stack;
 * afterwards _setjmp and _longjmp switch between stacks, much faster than swapcontext (no system
 * call). The C standard does not allow longjmp between stacks, but it works here.
 */
#undef _FORTIFY_SOURCE // it reports a jump to another stack as an error
#include <cstdint>
#include <sys/mman.h>
#include <ucontext.h>

#include "emulator.h"
#include "fiber.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#else
static void __sanitizer_start_switch_fiber(void **, const void *, size_t) {}
static void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) {}
#endif

namespace emulator {

enum : size_t { STACK_GUARD = 4096 };

Fiber::Fiber(void (*fiber_body)(Fiber *self)) : body(fiber_body) {
    void *memory = mmap(nullptr, STACK_GUARD + FIBER_STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, STACK_GUARD, PROT_NONE) != 0)
        fail("there is no memory for another thread of a kernel");
    pages = static_cast<char *>(memory);
}

Fiber::~Fiber() {
    munmap(pages, STACK_GUARD + FIBER_STACK);
}

const char *Fiber::stack() const {
    return pages + STACK_GUARD;
}

void Fiber::begin(unsigned low, unsigned high) {
    Fiber *self = reinterpret_cast<Fiber *>(static_cast<uintptr_t>(high) << 32 | low);
    __sanitizer_finish_switch_fiber(nullptr, &self->outside_stack, &self->outside_bytes);
    self->body(self);
}

void Fiber::resume() {
    __sanitizer_start_switch_fiber(&outside_frames, stack(), FIBER_STACK);
    if (_setjmp(outside) == 0) {
        if (begun) _longjmp(inside, 1);
        begun = true;
        ucontext_t first;
        getcontext(&first);
        first.uc_stack.ss_sp = pages + STACK_GUARD;
        first.uc_stack.ss_size = FIBER_STACK;
        uintptr_t address = reinterpret_cast<uintptr_t>(this); // makecontext passes ints only
        makecontext(&first, reinterpret_cast<void (*)()>(begin), 2, static_cast<unsigned>(address),
                    static_cast<unsigned>(address >> 32));
        setcontext(&first);
    }
    __sanitizer_finish_switch_fiber(outside_frames, nullptr, nullptr);
}

void Fiber::suspend() {
    __sanitizer_start_switch_fiber(&inside_frames, outside_stack, outside_bytes);
    if (_setjmp(inside) == 0) _longjmp(outside, 1);
    __sanitizer_finish_switch_fiber(inside_frames, &outside_stack, &outside_bytes);
}

} // namespace emulator
