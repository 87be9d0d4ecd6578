#!/bin/sh
# installed_alone.sh BIN_DIR BUILD_DIR CC: an installed copy needs neither our source nor our build. Both are hidden
# here by empty folders mounted on them in a mount namespace, which needs root.
. "$(dirname "$0")/prefix.sh"
cat >alone.sh <<'ALONE'
#!/bin/sh
# alone.sh SOURCE BUILD COMMAND...: runs COMMAND with SOURCE and BUILD hidden.
for folder in "$1" "$2"; do
    [ ! -d "$folder" ] || mount -t tmpfs none "$folder" || exit 125
done
[ -z "$(ls "$1")" ] || exit 125
shift 2
exec "$@"
ALONE
chmod +x alone.sh
alone() { unshare -m "$work/alone.sh" "$root" "$build" "$@"; }
alone true 2>err.txt || { echo "skipped: our folders cannot be hidden: $(cat err.txt)" && exit 77; }

checks=$((checks + 1))
! alone "$bin/train_single" --dry-run >out.txt 2>&1 || fail "the build is not out of reach"
run 'the digits' alone "$prefix/bin/train_single" --model mlp --steps 1
run 'the text' alone "$prefix/bin/train_dp" --model gpt --data text --steps 1 --no-eval --global-batch 4
run 'ddprun' alone "$prefix/bin/ddprun" --nproc-per-node 2 "$prefix/bin/train_ddp" --model mlp --steps 1
run 'configuration' alone cmake -S own -B own-build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
run 'build' alone cmake --build own-build --target own
run 'a program' alone ./own-build/own
run 'with two ranks' alone "$prefix/bin/ddprun" --nproc-per-node 2 ./own-build/own
# The GPU backend's module, if it was built, is found: the error may be a missing GPU, not a missing file.
checks=$((checks + 1))
alone env -u CUDA_VISIBLE_DEVICES "$prefix/bin/train_single" --device cuda --steps 1 >out.txt 2>&1 || :
! grep -q "libddpc_.*: cannot open shared object" out.txt || [ ! -e "$build/lib/libddpc_cuda.so" ] || fail "$(cat out.txt)"

# Missing data is an error. (`alone` hides the checkout's data folder, which is compiled in and searched first.)
mv "$prefix/share/ddpc/digits" hidden
refuse 2 'are neither in' alone "$prefix/bin/train_single" --model mlp --steps 1
tally installed_alone
