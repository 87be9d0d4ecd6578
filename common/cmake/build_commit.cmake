# Writes FILE, which defines build_commit (base/build.h) for the source tree SOURCE, if that is new.
# Without git, or outside a repository of its own, the commit is not known: "".
set(commit "")
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-cdup
                OUTPUT_VARIABLE above RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed EQUAL 0 AND above STREQUAL "")
  execute_process(COMMAND git --no-optional-locks -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty=+changes
                  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT [[
// Written by common/cmake/build_commit.cmake.
#include "common/base/build.h"

const char build_commit[] = "@commit@";
]])
