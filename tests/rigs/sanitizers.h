/* sanitizers.h: names the sanitizer of this build, for tests that must skip parts under it. */
#ifndef TESTS_RIGS_SANITIZERS_H
#define TESTS_RIGS_SANITIZERS_H

#ifdef __SANITIZE_THREAD__
enum { UNDER_TSAN = 1 };
#else
enum { UNDER_TSAN = 0 };
#endif
#ifdef __SANITIZE_ADDRESS__
enum { UNDER_ASAN = 1 };
#else
enum { UNDER_ASAN = 0 };
#endif

#endif
