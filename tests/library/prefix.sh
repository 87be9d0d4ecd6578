# prefix.sh: an installed copy, for the tests of it; sourced with BIN_DIR, BUILD_DIR and CC. It is installed into an empty
# folder and moved from there to $prefix, so nothing in it may know where it was; $lib is where its library is, and own
# is a copy of tutorials/own-program.
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$2 cc=$3
. "$root/tests/programs/checks.sh"
unset CMAKE_PREFIX_PATH PKG_CONFIG_PATH LD_LIBRARY_PATH

run 'cmake --install' cmake --install "$build" --prefix "$work/first"
mv first prefix
prefix=$work/prefix
lib=$(dirname "$(find "$prefix" -name libddpc.so)")
cp -r "$root/tutorials/own-program" own

# trains WHAT COMMAND...: DataParallel and DistributedDataParallel, with the bits of the first that did.
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
