/* build.h: the commit that the program was built from. */
#ifndef COMMON_BASE_BUILD_H
#define COMMON_BASE_BUILD_H

// Its first 12 digits, "1f2e3d4c5b6a", with "+changes" appended if files differed from it; "" if
// the sources are not in a git repository of their own.
extern const char build_commit[];

#endif
