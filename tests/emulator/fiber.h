/* fiber.h: a function with its own stack that can suspend itself and be resumed later.
 */
#ifndef TESTS_EMULATOR_FIBER_H
#define TESTS_EMULATOR_FIBER_H

#include <csetjmp>
#include <cstddef>

namespace emulator {

enum : size_t { FIBER_STACK = 256 * 1024 };

class Fiber {
  public:
    explicit Fiber(void (*body)(Fiber *self)); // body must never return
    ~Fiber();
    Fiber(const Fiber &) = delete;
    Fiber &operator=(const Fiber &) = delete;
    void resume();             // called from outside: returns when the fiber suspends itself
    const char *stack() const; // of FIBER_STACK bytes
    void suspend(); // called by the fiber: returns when it is resumed (by the same thread)

  private:
    static void begin(unsigned low, unsigned high);

    void (*body)(Fiber *self);
    char *pages; // guard pages, then the stack
    bool begun = false;
    jmp_buf inside, outside; // the suspended states of the fiber and of its caller
    // For AddressSanitizer, which must be informed of each change of stacks.
    void *inside_frames = nullptr, *outside_frames = nullptr;
    const void *outside_stack = nullptr;
    size_t outside_bytes = 0;
};

} // namespace emulator

#endif
