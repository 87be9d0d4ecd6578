#!/bin/sh
# installed.sh BIN_DIR BUILD_DIR CC: a copy that is installed into an empty folder, and moved from there, is all that a
# stranger's program needs. tutorials/own-program is built with it by CMake in C and in C++, by pkg-config, and with the
# static libraries; with the CUDA toolkit in reach and out of it. It trains to the same bits each way.
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$2 cc=$3
. "$root/tests/programs/checks.sh"
command -v c++ >/dev/null || { echo "installed: there is no c++" && exit 77; }
unset CMAKE_PREFIX_PATH PKG_CONFIG_PATH LD_LIBRARY_PATH

run 'cmake --install' cmake --install "$build" --prefix "$work/first"
mv first prefix # nothing in it may know where it was
prefix=$work/prefix
lib=$(dirname "$(find "$prefix" -name libddpc_common.so)")
cp -r "$root/tutorials/own-program" own

# --- What is in it

for file in bin/train_single bin/train_dp bin/train_ddp bin/ddprun include/ddpc/ddpc.h \
    include/ddpc/common/nn/tape.h share/ddpc/digits/train-images-idx3-ubyte.gz share/ddpc/pt_to_safetensors.py; do
    checks=$((checks + 1))
    [ -e "$prefix/$file" ] || fail "there is no $file"
done
run "the digits of a copy that was moved" "$prefix/bin/train_single" --model toy --steps 1
for c in common dp ddp; do
    checks=$((checks + 2))
    [ -s "$lib/libddpc_$c.a" ] || fail "there is no libddpc_$c.a"
    nm -D --defined-only "$lib/libddpc_$c.so" | awk '{ print $3 }' >shown.txt
    ! grep -nE '^(segment_|cpu_|shm_|run_|chunk_sum)' shown.txt >hidden.txt || fail "libddpc_$c.so shows $(cat hidden.txt)"
done

# Every function that a public header declares is in one of the libraries, by the compiler's own list of them.
checks=$((checks + 1))
echo '#include <ddpc/ddpc.h>' >all.c
if "$cc" -aux-info all.txt -fsyntax-only -I"$prefix/include" -I"$prefix/include/ddpc" all.c 2>/dev/null && [ -s all.txt ]; then
    nm -D --defined-only "$lib"/libddpc_*.so | awk 'NF == 3 { print $3 }' | sort -u >shown.txt
    grep "^/\* $prefix" all.txt | grep -v '\*/ static' | sed 's/.*\*\/ extern //; s/ (\*__.*//; s/ (.*//; s/.*[ *]//' |
        sort -u | comm -23 - shown.txt >missing.txt
    [ ! -s missing.txt ] || fail "declared in public headers, and in no library: $(tr '\n' ' ' <missing.txt)"
    [ "$(grep -c "^/\* $prefix" all.txt)" -gt 300 ] || fail "only $(grep -c "^/\* $prefix" all.txt) declarations seen"
fi

# The header says nothing under strict warnings, in C and in C++.
run 'strict C' "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" \
    -I"$prefix/include/ddpc" all.c
run 'strict C++' c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -x c++ -fsyntax-only -I"$prefix/include" \
    -I"$prefix/include/ddpc" all.c

# --- A program of one's own

code=$(grep -cvE '^ *(//.*)?$|^ ?\*|^/\*' own/own.c)
checks=$((checks + 1))
[ "$code" -le 80 ] || fail "own.c has $code lines of code, and the page promises 80"

# trains WHAT PROGRAM: DataParallel and DistributedDataParallel, with the bits of the first that did.
trains() {
    run "$1" "$2"
    [ -e want ] || mv own.weights want
    [ -e want.txt ] || cp out.txt want.txt
    [ ! -e own.weights ] || run "$1: bits" "$bin/compare_tensors" --bitwise want own.weights
    run "$1, DDP" "$prefix/bin/ddprun" --nproc-per-node 2 "$2"
    cmp -s out.txt want.txt || fail "$1, DDP prints something else: $(tail -n 1 out.txt)"
    run "$1, DDP: bits" "$bin/compare_tensors" --bitwise want own.weights
    rm -f own.weights
}
run 'configuration' cmake -S own -B own-build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
run 'build' cmake --build own-build
trains 'C' ./own-build/own
awk -F 'loss=' '{ last = $2 } END { exit !(last < 0.1) }' want.txt || fail "it does not learn: $(tail -n 1 want.txt)"
trains 'C++' ./own-build/own_cpp
ldd own-build/own >ldd.txt
! grep -iE 'not found|cuda|cublas|nccl' ldd.txt >bad.txt || fail "own is linked with $(cat bad.txt)"

# Where no CUDA toolkit is: no nvcc in PATH, no package, no headers.
run 'configuration without the toolkit' env -u CUDACXX -u CUDA_PATH PATH="$(dirname "$(command -v cmake)"):/usr/bin:/bin" \
    cmake -S own -B own-without -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_CUDA=ON
run 'build without the toolkit' cmake --build own-without --target own
trains 'without the toolkit' ./own-without/own

# Static libraries, and a component that does not exist.
sed 's/COMPONENTS dp ddp/COMPONENTS static/; s/ddpc::dp ddpc::ddp/ddpc::dp_static ddpc::ddp_static/' \
    own/CMakeLists.txt >CMakeLists.static
cp -r own own-static
mv CMakeLists.static own-static/CMakeLists.txt
run 'configuration, static' cmake -S own-static -B static-build -DCMAKE_PREFIX_PATH="$prefix"
run 'build, static' cmake --build static-build --target own
trains 'static' ./static-build/own
checks=$((checks + 1))
! ldd static-build/own | grep libddpc || fail "the static program needs a shared library"
mpi_of() { ldd "$1" | grep -oE 'libmpi(ch)?\.so[.0-9]*' | sort -u; }
checks=$((checks + 1))
[ "$(mpi_of static-build/own)" = "$(mpi_of "$lib/libddpc_ddp.so")" ] ||
    fail "the static program is linked with another MPI than the library: $(mpi_of static-build/own)"
sed -i 's/COMPONENTS static/COMPONENTS nothing/' own-static/CMakeLists.txt
checks=$((checks + 1))
! cmake -S own-static -B nothing -DCMAKE_PREFIX_PATH="$prefix" >out.txt 2>&1 || fail "a component that does not exist is found"
grep -q 'no component nothing' out.txt || fail "a component that does not exist: $(cat out.txt)"

# pkg-config, by hand.
PKG_CONFIG_PATH=$lib/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # several words
run 'pkg-config' "$cc" -std=c11 own/own.c -o by-hand $(pkg-config --cflags --libs ddpc-dp ddpc-ddp) -lm \
    "-Wl,-rpath,$lib"
trains 'pkg-config' ./by-hand
run 'the version' pkg-config --exact-version="$(sed -n 's/#define DDPC_VERSION "\(.*\)"/\1/p' "$prefix/include/ddpc/ddpc.h")" ddpc-common

tally installed
