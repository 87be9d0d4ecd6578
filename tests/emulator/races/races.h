/* races.h: a race checker for the threads of a kernel: its calls by kernel.cpp, and its rules.
 *
 * -DEMULATED_RACES=ON compiles the .cu files with -fsanitize=thread, and the functions that the
 * compiler calls before each access (__tsan_read4, ...) are races.cpp's, not ThreadSanitizer's.
 * A race ends the program with the kernel and both places; so does reading a byte of shared memory
 * that no thread of the block has written. A race is reported even if every value was correct in
 * this run.
 *
 * Two accesses to a byte, of which one writes and which are not both atomic, are ordered if
 *
 *   threads               between them
 *   the same one          -
 *   of a warp             __syncwarp of all its lanes. (Shuffles and votes order no memory)
 *   of a block            __syncthreads
 *   of two blocks         the first's __threadfence, then its atomic; the second's atomic on the
 *                         same word, then its __threadfence. A __syncthreads before the first's
 *                         fence includes its block's accesses, one after the second's its block
 *
 * Not checked: two kernels against each other (stream.cpp checks the order of streams), accesses by
 * memcpy, and orders that involve a third block and a second word.
 */
#ifndef TESTS_EMULATOR_RACES_RACES_H
#define TESTS_EMULATOR_RACES_RACES_H

namespace emulator {

#ifdef EMULATED_RACES
void races_begin(const void *kernel);
void races_block();                                    // the next block begins
void races_thread(unsigned thread, const char *stack); // the next accesses are this thread's
void races_barrier();                                  // all threads have reached a barrier
void races_warp();                                     // the thread has passed a __syncwarp
void races_end();
#else
inline void races_begin(const void *) {}
inline void races_block() {}
inline void races_thread(unsigned, const char *) {}
inline void races_barrier() {}
inline void races_warp() {}
inline void races_end() {}
#endif

} // namespace emulator

#endif
