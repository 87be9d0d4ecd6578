#!/bin/sh
# one_job.sh BIN_DIR: a run locks its outputs. A second job with the same --out or --save ends with status 2 and names
# the first; after a kill the lock is free at once; and a --save that is a symbolic link stays a link.
. "$(dirname "$0")/checks.sh"
export OMP_NUM_THREADS=1
long="--epochs 1000000 --global-batch 32 --no-eval --log-every 1"

# begin FOLDER COMMAND...: starts a long job in the background, $job, and waits until its lock, FOLDER/.lock or
# FILE.lock, contains its name.
begin() {
    lock=$1
    shift
    : >long.txt # removes the previous job's steps
    "$@" >>long.txt 2>&1 </dev/null &
    job=$!
    trap 'kill -9 $job 2>/dev/null || true; rm -rf "$work"' EXIT
    until [ -s "$lock" ] || grep -q '^step=' long.txt || ! kill -0 "$job" 2>/dev/null; do sleep 0.05; done
    [ -s "$lock" ] || fail "no lock from $*: $(tail -n 3 long.txt)"
}
# end COMMAND...: kills the job; the lock is free at once, without waiting. A COMMAND that resumes ends a few steps
# later.
end() {
    kill -9 "$job"
    last=$(tail -n 20 long.txt | sed -n 's/.*step=\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
    case "$*" in *--resume*) set -- "$@" --steps $((last + 5)) ;; esac
    status=0
    "$@" >out.txt 2>err.txt || status=$?
    checks=$((checks + 1))
    [ $status = 0 ] || fail "after a kill: $*: $(cat err.txt)"
    wait "$job" 2>/dev/null || true
}
whole() { # FOLDER: no lock or temporary file is left
    checks=$((checks + 1))
    left=$(find "$1" -name '.lock' -o -name '*.lock' -o -name '*.tmp')
    [ -z "$left" ] || fail "left behind: $left"
}

# ---- --out ---------------------------------------------------------------------------------------------
mkdir "a folder"
begin "a folder/.lock" "$bin/train_single" $long --out "a folder" --save-every 1
host=$(uname -n)
refuse 2 "--out a folder: in use by process $job on $host: $bin/train_single --epochs" "$bin/train_dp" --devices 2 --out "a folder"
refuse 2 "--out a folder: in use by process $job" "$bin/train_single" --out "a folder" --resume auto
ln -s "a folder" link
refuse 2 "--out link: in use by process $job" "$bin/train_single" --out link
refuse 2 "--out a folder: in use by process $job" "$bin/train_single" --evaluate "a folder/last.safetensors" --out "a folder"
checks=$((checks + 1))
status=0
"$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --out "a folder" >out.txt 2>err.txt || status=$?
[ $status = 2 ] && grep -q "error: --out a folder: in use by process $job" err.txt || fail "ranks, status $status: $(cat err.txt)"
refuse 2 "--save a folder/last.safetensors: in use by process $job" "$bin/train_single" --steps 1 --save "a folder/last.safetensors"
run "another folder" "$bin/train_single" --steps 2 --no-eval --out other
whole other
end "$bin/train_single" --global-batch 32 --no-eval --out "a folder" --resume auto
whole "a folder"
run "once more" "$bin/train_single" --steps 1 --no-eval --out "a folder"

# ---- --save --------------------------------------------------------------------------------------------
mkdir saves elsewhere
begin saves/one.lock "$bin/train_single" $long --save saves/one
refuse 2 "--save saves/one: in use by process $job on $host: " "$bin/train_single" --steps 1 --save saves/one
ln -s ../saves/one elsewhere/alias
refuse 2 "--save elsewhere/alias: in use by process $job" "$bin/train_single" --steps 1 --save elsewhere/alias
run "another file in that folder" "$bin/train_single" --steps 2 --no-eval --save saves/two
end "$bin/train_single" --global-batch 32 --no-eval --save saves/one --resume auto
whole saves
begin saves/last.safetensors.lock "$bin/train_single" $long --save saves/last.safetensors
refuse 2 "--out saves/last.safetensors: in use by process $job" "$bin/train_single" --steps 1 --out saves
end "$bin/train_single" --steps 1 --no-eval --out saves
whole saves
run "--save into --out's folder" "$bin/train_single" --steps 1 --no-eval --out saves --save saves/last.safetensors
echo "mine" >saves/three.lock
refuse 2 "--save saves/three: cannot make saves/three.lock: File exists" "$bin/train_single" --steps 1 --save saves/three
[ "$(cat saves/three.lock)" = mine ] || fail "a file that is no lock was changed"
rm saves/three.lock
mkdir saves/three.lock
refuse 2 "--save saves/three: cannot make saves/three.lock: Is a directory" "$bin/train_single" --steps 1 --save saves/three

# ---- restarted ranks -----------------------------------------------------------------------------------
begin ranks/.lock "$bin/ddprun" --nproc-per-node 2 --max-restarts 1 "$bin/train_ddp" $long --out ranks --save-every 1 --resume auto
rank=$(sed -n 's/^process \([0-9]*\) on .*/\1/p' ranks/.lock)
until [ -s ranks/last.safetensors ] || ! kill -0 "$job" 2>/dev/null; do sleep 0.05; done
kill -9 "$rank"
until grep -q 'resumed ranks/last.safetensors' long.txt || ! kill -0 "$job" 2>/dev/null; do sleep 0.05; done
checks=$((checks + 1))
grep -q 'resumed ranks/last.safetensors' long.txt || fail "restarted ranks: $(cat long.txt)"
refuse 2 "--out ranks: in use by process" "$bin/train_single" --steps 1 --out ranks
end "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --no-eval --out ranks --global-batch 32 --resume auto
whole ranks

# ---- links ---------------------------------------------------------------------------------------------
# kept LINK TARGET: the link is still one, and both names have the bits of FILE
kept() {
    checks=$((checks + 1))
    [ -L "$1" ] && [ ! -L "$2" ] && [ -s "$2" ] || fail "$1 -> $2: $(ls -l "$1" "$2" 2>&1)"
    "$bin/compare_tensors" --bitwise "$1" plain >cmp.txt 2>&1 || fail "$1: $(cat cmp.txt)"
    same "$2" plain
    run "resumed from $1" "$bin/train_single" --steps 3 --no-eval --resume "$1" --save went-on
    run "resumed from $2" "$bin/train_single" --steps 3 --no-eval --resume "$2" --save went-on-too
    same went-on went-on-too
    left=$(find links linked -name '*.optimizer' ! -name "$(basename "$2").2.*" -o -name '*.tmp' -o -name '*.lock')
    [ -z "$left" ] || fail "left behind: $left"
}
mkdir links linked
run "no link" "$bin/train_single" --steps 2 --no-eval --save plain
ln -s ../linked/target links/relative
run "a dangling link" "$bin/train_single" --steps 2 --no-eval --save links/relative
kept links/relative linked/target
run "a link to a checkpoint" "$bin/train_single" --steps 2 --no-eval --save links/relative
kept links/relative linked/target
ln -s "$work/links/relative" links/absolute
run "a link to a link" "$bin/train_single" --steps 2 --no-eval --save links/absolute
kept links/absolute linked/target
[ -L links/relative ] || fail "the link in the middle is gone"
ln -s ../linked/init links/init
run "--save-init" "$bin/train_single" --steps 2 --no-eval --save-init links/init --save plain
[ -L links/init ] && [ -s linked/init ] || fail "--save-init: $(ls -l links linked)"
ln -s loop links/loop
refuse 2 "cannot write links/loop: Too many levels" "$bin/train_single" --steps 1 --save links/loop
ln -s missing/file links/nowhere
refuse 2 "cannot write links/nowhere: No such file" "$bin/train_single" --steps 1 --save links/nowhere
# Also the last checkpoint of --out: both files of the pair stay together.
mkdir out
ln -s ../linked/last out/last.safetensors
run "--out with a link" "$bin/train_single" --epochs 2 --out out
run "and on" "$bin/train_single" --epochs 3 --out out --resume out/last.safetensors
[ -L out/last.safetensors ] && [ ! -e out/previous.safetensors ] || fail "out: $(ls -l out)"
run "from the target" "$bin/train_single" --epochs 4 --no-eval --resume linked/last

tally one_job
