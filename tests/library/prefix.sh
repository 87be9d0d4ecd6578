# prefix.sh: an installed copy for the tests of it; sourced with BIN_DIR, BUILD_DIR and CC as arguments. The copy is
# installed into an empty folder and then moved to $prefix, so that no path in it is that of the installation; $lib is
# its library's folder, and own is a copy of tutorials/own-program.
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$2 cc=$3
. "$root/tests/programs/checks.sh"
unset CMAKE_PREFIX_PATH PKG_CONFIG_PATH LD_LIBRARY_PATH

run 'cmake --install' cmake --install "$build" --prefix "$work/first"
mv first prefix
prefix=$work/prefix
lib=$(dirname "$(find "$prefix" -name libddpc.so)")
cp -r "$root/tutorials/own-program" own

# trains WHAT COMMAND...: COMMAND trains with DataParallel and DistributedDataParallel, to the bits of the first call.
trains() {
    what=$1
    shift
    run "$what" "$@"
    [ -e want ] || mv own.weights want
    [ -e want.txt ] || cp out.txt want.txt
    [ ! -e own.weights ] || run "$what: bits" "$bin/compare_tensors" --bitwise want own.weights
    run "$what, DDP" "$prefix/bin/ddprun" --nproc-per-node 2 "$@"
    cmp -s out.txt want.txt || fail "$what, DDP prints something else: $(tail -n 1 out.txt)"
    run "$what, DDP: bits" "$bin/compare_tensors" --bitwise want own.weights
    rm -f own.weights
}
