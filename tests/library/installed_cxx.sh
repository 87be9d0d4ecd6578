#!/bin/sh
# installed_cxx.sh BIN_DIR BUILD_DIR CC: an installed copy used from C++: its header compiles without a warning under
# strict flags, also beside another library's CHECK; tutorials/own-program's own.cpp trains to the bits of own.c.
command -v c++ >/dev/null || { echo "skipped: there is no c++" && exit 77; }
. "$(dirname "$0")/prefix.sh"

# strict WHAT: all.cpp compiles without a warning.
strict() {
    run "$1" c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" -I"$prefix/include/ddpc" all.cpp
}
echo '#include <ddpc/ddpc.h>' >all.cpp
strict 'strict C++'
for order in before after; do
    their='#define CHECK(theirs) static_assert(theirs, "theirs")' ours='#include <ddpc/ddpc.h>'
    [ $order = before ] || { their=$ours && ours='#define CHECK(theirs) static_assert(theirs, "theirs")'; }
    printf '%s\n%s\nCHECK(sizeof(Error) > 0);\n' "$their" "$ours" >all.cpp
    strict "another CHECK, $order"
done
# A program that includes one of our headers by itself has our CHECK, also with the whole header after it.
printf 'extern "C" {\n#include "common/base/error.h"\n}\n#include <ddpc/ddpc.h>\nvoid f() { CHECK(sizeof(Error) > 0, "ours"); }\n' >all.cpp
strict 'our CHECK'

run 'configuration' cmake -S own -B own-build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
run 'build' cmake --build own-build
trains 'C' ./own-build/own
trains 'C++' ./own-build/own_cpp
tally installed_cxx
