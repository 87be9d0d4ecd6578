/* build.h: what the programs know of how they were built. */
#ifndef COMMON_BASE_BUILD_H
#define COMMON_BASE_BUILD_H

// The commit that was built, "1f2e3d4c5b6a", with "+changes" if files differed from it; "" if the
// sources lay in no git repository of their own.
extern const char build_commit[];

#endif
