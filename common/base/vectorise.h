/* vectorise.h: loops that use the vector registers of the processor that runs them.
 *
 * The build has no -march=native: a program runs on every x86-64 and on every aarch64. Elements
 * that are computed independently of each other have the same bits at every width.
 *
 * | processor | VECTORISED before a function                                                   |
 * |-----------|--------------------------------------------------------------------------------|
 * | x86-64    | compiles it for AVX-512, AVX2 and SSE2; the loader picks one                   |
 * | aarch64   | no effect: all have NEON, for which -O3 compiles every function (SVE: not used) |
 */
#ifndef COMMON_BASE_VECTORISE_H
#define COMMON_BASE_VECTORISE_H

#include <stdint.h> // defines __GLIBC__

// Off with sanitizers, because the loader calls the resolver before their runtime is initialised,
// and with clang, some versions of which cannot call such a function from another file.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

// Before a loop whose iterations access their own index only: it may be vectorised although input
// and output may alias.
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
