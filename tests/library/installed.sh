#!/bin/sh
# installed.sh BIN_DIR BUILD_DIR CC: the files and symbols of an installed copy, and tutorials/own-program built with it
# by CMake, by pkg-config and with the static library, with and without the CUDA toolkit. It trains to the same bits
# each way. C++: installed_cxx.sh. Without our source and build: installed_alone.sh.
. "$(dirname "$0")/prefix.sh"

# --- What is in it

for file in include/ddpc/ddpc.h include/ddpc/common/nn/tape.h share/ddpc/digits/train-images-idx3-ubyte.gz \
    share/ddpc/text/README.md lib/libddpc.a lib/pkgconfig/ddpc.pc share/ddpc/LICENSE share/ddpc/pt_to_safetensors.py; do
    checks=$((checks + 1))
    [ -e "$prefix/$file" ] || fail "there is no $file"
done
for program in train_single train_dp train_ddp ddprun flight_report compare_tensors merge_traces; do
    checks=$((checks + 2))
    [ -x "$prefix/bin/$program" ] || fail "there is no bin/$program"
    [ -s "$prefix/share/man/man1/$program.1" ] || fail "there is no manual page of $program"
done
for module in cuda nccl; do
    checks=$((checks + 1))
    [ ! -e "$build/lib/libddpc_$module.so" ] || [ -e "$lib/libddpc_$module.so" ] || fail "there is no libddpc_$module.so"
done

# The library exports exactly the functions that the compiler finds in the public headers. (A compiler cache may write
# other paths into its list.)
checks=$((checks + 2))
echo '#include <ddpc/ddpc.h>' >all.c
if CCACHE_DISABLE=1 "$cc" -aux-info all.txt -fsyntax-only -I"$prefix/include" -I"$prefix/include/ddpc" all.c 2>/dev/null && [ -s all.txt ]; then
    grep "^/\* $prefix" all.txt | grep -v '\*/ static' | sed 's/.*\*\/ extern //; s/ (\*__.*//; s/ (.*//; s/.*[ *]//' |
        sort -u >declared.txt
    nm -D --defined-only "$lib"/libddpc.so |
        awk 'NF == 3 { print $3 }' | sort -u >shown.txt
    comm -23 declared.txt shown.txt >missing.txt
    [ ! -s missing.txt ] || fail "declared in public headers, and not in the library: $(tr '\n' ' ' <missing.txt)"
    comm -13 declared.txt shown.txt >hidden.txt
    [ ! -s hidden.txt ] || fail "shown, and declared in no public header: $(tr '\n' ' ' <hidden.txt)"
    [ "$(wc -l <declared.txt)" -gt 200 ] || fail "only $(wc -l <declared.txt) declarations seen"
else
    echo "left out: $cc has no -aux-info, so what the libraries show was not compared with the headers"
fi

# The header compiles without a warning under strict flags.
run 'strict C' "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" \
    -I"$prefix/include/ddpc" all.c

# The header's example compiles and learns, and the headers name no file of the project that is not installed.
sed -n '/^ \*     #include/,/^ \*$/s/^ \*     //p' "$prefix/include/ddpc/ddpc.h" >example.c
run 'the example' "$cc" -std=c11 -Wall -Wextra -Werror example.c -o example -I"$prefix/include" -I"$prefix/include/ddpc" \
    -L"$lib" -lddpc "-Wl,-rpath,$lib"
run 'the example' ./example
awk -F= 'NR == 1 { first = $2 } { last = $2 } END { exit !(NR == 4 && first > 0.9 && last < 0.1) }' out.txt ||
    fail "the example does not learn: $(cat out.txt)"
lines=$(grep -c . example.c)
[ "$lines" -le 20 ] || fail "the example has $lines lines"
(cd "$prefix/include/ddpc" && find . -name '*.h') | sed 's/^\.//' >headers.txt
(cd "$prefix/include/ddpc" && grep -rnoE '[A-Za-z_0-9/]+\.(h|c|cu|md|cmake)\b' .) >named.txt
while IFS=: read -r file line name; do
    case $name in ddpc/ddpc.h | std*.h | string.h | */*/std*.h | ddp.c) continue ;; esac # C's headers, and the project's name
    checks=$((checks + 1))
    grep -qE "/$name$" headers.txt || fail "$file:$line names $name, which is not installed"
done <named.txt
checks=$((checks + 2))
[ "$(wc -l <headers.txt)" = "$(($(grep -cE '^ \*   [a-z_/]+\.h$' "$prefix/include/ddpc/ddpc.h") + 1))" ] || fail "ddpc.h lists other headers"
[ -s "$prefix/share/man/man7/ddpc.7" ] || fail "there is no manual page ddpc(7)"

# --- A user's program

for file in own.c own.cpp; do
    code=$(grep -cvE '^ *(//.*)?$|^ ?\*|^/\*' own/$file)
    checks=$((checks + 1))
    [ "$code" -le 82 ] || fail "$file has $code lines of code, and the page promises some 80"
done

run 'configuration' cmake -S own -B own-build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
run 'build' cmake --build own-build --target own
trains 'C' ./own-build/own
awk -F 'loss=' '{ last = $2 } END { exit !(last < 0.1) }' want.txt || fail "it does not learn: $(tail -n 1 want.txt)"
ldd own-build/own >ldd.txt
! grep -iE 'not found|cuda|cublas|nccl' ldd.txt >bad.txt || fail "own is linked with $(cat bad.txt)"

# Without a CUDA toolkit: no nvcc in PATH, no package, no headers.
run 'configuration without the toolkit' env -u CUDACXX -u CUDA_PATH PATH="$(dirname "$(command -v cmake)"):/usr/bin:/bin" \
    cmake -S own -B own-without -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_CUDA=ON
run 'build without the toolkit' cmake --build own-without --target own
trains 'without the toolkit' ./own-without/own

# The static library, and a component that does not exist.
sed 's/ddpc 0.1 REQUIRED/& COMPONENTS static/; s/ddpc::ddpc/&_static/' \
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
[ "$(mpi_of static-build/own)" = "$(mpi_of "$lib/libddpc.so")" ] ||
    fail "the static program is linked with another MPI than the library: $(mpi_of static-build/own)"
sed -i 's/COMPONENTS static/COMPONENTS nothing/' own-static/CMakeLists.txt
checks=$((checks + 1))
! cmake -S own-static -B nothing -DCMAKE_PREFIX_PATH="$prefix" >out.txt 2>&1 || fail "a component that does not exist is found"
grep -q 'no component nothing' out.txt || fail "a component that does not exist: $(cat out.txt)"

# pkg-config without CMake; also with the static library, in a copy that has only that one, in the folders of Debian.
by_hand() { # PREFIX OPTION: builds by-hand
    PKG_CONFIG_PATH=$(dirname "$(find "$1" -name ddpc.pc)")
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046,SC2086 # several words, or none
    run "pkg-config $2" "$cc" -std=c11 own/own.c -o by-hand $(pkg-config $2 --cflags --libs ddpc) -lm \
        "-Wl,-rpath,$(dirname "$PKG_CONFIG_PATH")"
}
by_hand "$prefix" ''
run 'the version' pkg-config --exact-version="$(sed -n 's/#define DDPC_VERSION "\(.*\)"/\1/p' "$prefix/include/ddpc/ddpc.h")" ddpc
trains 'pkg-config' ./by-hand
cp -r "$prefix" archives
find archives \( -name 'libddpc*.so*' -o -name cmake \) -prune -exec rm -r {} +
by_hand "$work/archives" --static
trains 'pkg-config --static' ./by-hand
for dir in lib lib/x86_64-linux-gnu; do
    run "configuration, libraries in $dir" cmake -S "$root" -B "pc/$dir" -DWITH_CUDA=OFF -DWITH_TESTS=OFF \
        -DCMAKE_INSTALL_LIBDIR=$dir -DCMAKE_C_COMPILER="$cc"
    mkdir -p "place/$dir"
    cp -r "pc/$dir/pkgconfig" "place/$dir/"
    is=$(PKG_CONFIG_PATH="$work/place/$dir/pkgconfig" pkg-config --variable=prefix ddpc)
    checks=$((checks + 1))
    [ "$(realpath "$is")" = "$(realpath place)" ] || fail "the prefix of $dir/pkgconfig is $is"
done

tally installed
