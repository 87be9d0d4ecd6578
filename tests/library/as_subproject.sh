#!/bin/sh
# as_subproject.sh BIN_DIR CC: this tree as a part of another project's build, by add_subdirectory and by FetchContent.
# It adds no target with a common name, no tests and no flags to that project, whose program trains.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
mkdir theirs
cp "$root/tutorials/own-program/own.c" theirs/
cat >theirs/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(theirs LANGUAGES C)
foreach(name common train dp ddp tests store lint workload tutorial gpu) # the other project's own targets
  add_library(${name} INTERFACE)
endforeach()
if(FETCH)
  include(FetchContent)
  FetchContent_Declare(ddpc SOURCE_DIR ${DDPC})
  FetchContent_MakeAvailable(ddpc)
else()
  add_subdirectory(${DDPC} ddpc)
endif()
enable_testing()
add_executable(own own.c)
target_link_libraries(own ddpc::ddpc m)
get_directory_property(options COMPILE_OPTIONS)
get_directory_property(definitions COMPILE_DEFINITIONS)
get_target_property(public ddpc::ddpc INTERFACE_COMPILE_OPTIONS)
message(STATUS "ours: ${options} ${definitions} ${CMAKE_C_FLAGS} ${CMAKE_BUILD_TYPE} ${CMAKE_C_STANDARD}")
if(options OR definitions OR public OR CMAKE_BUILD_TYPE OR CMAKE_C_STANDARD)
  message(FATAL_ERROR "ddp.c has changed their flags")
endif()
END
# As a user configures it: with the CUDA toolkit where there is one, and with an option WITH_TESTS of the user's own.
# (The builds below are without CUDA, whose kernels take minutes.)
run 'FetchContent, with the toolkit' cmake -S theirs -B fetched -DFETCH=ON -DDDPC="$root"
run 'add_subdirectory' cmake -S theirs -B build -DDDPC="$root" -DWITH_CUDA=OFF -DCMAKE_C_FLAGS=-O1
run 'FetchContent' cmake -S theirs -B fetched-build -DFETCH=ON -DDDPC="$root" -DWITH_CUDA=OFF -DCMAKE_C_FLAGS=-O1 -DWITH_TESTS=ON
for build in build fetched-build; do
    checks=$((checks + 1))
    ctest --test-dir $build -N | grep -q 'Total Tests: 0' || fail "$build: their tests have become more"
    run "$build" cmake --build $build -j 2 --target own ddprun
    run "$build: DataParallel" $build/own
    mv own.weights dp
    run "$build: DistributedDataParallel" "$(find $build -path '*bin/ddprun')" --nproc-per-node 2 $build/own
    run "$build: bits" "$bin/compare_tensors" --bitwise dp own.weights
done
tally as_subproject
