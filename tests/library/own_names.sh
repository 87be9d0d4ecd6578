#!/bin/sh
# own_names.sh BIN_DIR BUILD_DIR CC: a program may use the library's internal names. tutorials/own-program trains to the
# same bits when it also defines a function of every internal name (memory_zalloc, clock_ns, log_open, ...), each of
# which ends the process; and, with the shared library, of every public function that it does not call.
. "$(dirname "$0")/prefix.sh"
cat >CMakeLists.names <<'END'
cmake_minimum_required(VERSION 3.25)
project(own LANGUAGES C)
find_package(ddpc REQUIRED COMPONENTS static)
add_executable(plain own.c)
target_link_libraries(plain ddpc::ddpc m)
add_executable(shared own.c shared_names.c)
target_link_libraries(shared ddpc::ddpc m)
target_link_options(shared PRIVATE -rdynamic)
add_executable(archive own.c archive_names.c)
target_link_libraries(archive ddpc::ddpc_static m)
END
mv CMakeLists.names own/CMakeLists.txt

# All internal names: a program may define any of them.
functions() { sed -E 's/(.*)/void \1(void);\nvoid \1(void) { __builtin_trap(); }/' "$1"; }
find "$build" -name 'libddpc_*.a' -exec nm --defined-only {} + 2>/dev/null | awk '$2 ~ /^[TDRBC]$/ { print $3 }' | sort -u >all.txt
sort "$build/lib/ddpc.symbols" | comm -23 all.txt - >inside.txt
"$cc" -c -I"$prefix/include" -I"$prefix/include/ddpc" own/own.c -o own.o
nm -u own.o | awk '{ print $2 }' | sort -u >called.txt
comm -12 all.txt "$build/lib/ddpc.symbols" | comm -23 - called.txt >others.txt
for name in memory_zalloc clock_ns log_open options_parse trace_open; do
    checks=$((checks + 1))
    grep -qx $name inside.txt || fail "$name is not among the names inside"
done
checks=$((checks + 2))
[ "$(wc -l <inside.txt)" -gt 400 ] || fail "only $(wc -l <inside.txt) names inside"
[ "$(wc -l <others.txt)" -gt 200 ] || fail "only $(wc -l <others.txt) public names that own.c does not call"
functions inside.txt >own/archive_names.c
sort inside.txt others.txt >both.txt
functions both.txt >own/shared_names.c
run 'configuration' cmake -S own -B own-build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
run 'build' cmake --build own-build
trains 'with the library' ./own-build/plain
trains 'names of its own, shared' ./own-build/shared
trains 'names of its own, static' ./own-build/archive
echo "$(wc -l <inside.txt) names inside, $(wc -l <others.txt) public ones"
tally own_names
