/* cache_line.h: the distance, in bytes, at which two threads' data cause no traffic for each other.
 *
 * | processors             | line | defined |
 * |------------------------|------|---------|
 * | x86-64                 |   64 |      64 |
 * | aarch64: most          |   64 |     128 |
 * | aarch64: Apple's cores |  128 |     128 |
 *
 * Files and messages do not depend on it; the ranks that share memory run the same program.
 */
#ifndef COMMON_BASE_CACHE_LINE_H
#define COMMON_BASE_CACHE_LINE_H

#if defined(__aarch64__)
enum { CACHE_LINE = 128 };
#else
enum { CACHE_LINE = 64 };
#endif

#endif
