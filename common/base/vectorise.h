/* vectorise.h: loops that use the vector registers of the processor that runs them.
 *
 * The build has no -march=native: a program runs on every x86-64. VECTORISED before a function
 * compiles it for several instruction sets, and the loader picks one. It says nothing about bits:
 * elements that are computed independently get the same ones at every width.
 */
#ifndef COMMON_BASE_VECTORISE_H
#define COMMON_BASE_VECTORISE_H

#include <stdint.h> // with it comes __GLIBC__

// The loader calls the chooser before a sanitizer's runtime is up, so sanitized builds go without.
// So do those with clang, some of whose versions cannot call such a function from another file.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

// Stands before a loop whose iterations touch their own index only. Such a loop may be vectorised
// even where the output is the input, which the compiler cannot know from two pointers.
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
