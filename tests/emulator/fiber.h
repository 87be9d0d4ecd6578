/* fiber.h: a function that can stop in the middle and go on later, on a stack of its own.
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
    void resume();             // called outside: returns when the fiber suspends itself
    const char *stack() const; // FIBER_STACK bytes
    void suspend(); // called inside: returns when the fiber is resumed (by the same thread)

  private:
    static void begin(unsigned low, unsigned high);

    void (*body)(Fiber *self);
    char *pages; // the guard, then the stack
    bool begun = false;
    jmp_buf inside, outside; // where each side resumes
    // For AddressSanitizer, which must be told each change of stacks.
    void *inside_frames = nullptr, *outside_frames = nullptr;
    const void *outside_stack = nullptr;
    size_t outside_bytes = 0;
};

} // namespace emulator

#endif
