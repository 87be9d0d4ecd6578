#!/bin/sh
# limits.sh BIN_DIR: under a limit of address space (ulimit -v) or of file size (ulimit -f) a program names the limit
# that ended it. A program in which OpenBLAS spins forever is ended by `timeout`, with 124.
. "$(dirname "$0")/checks.sh"
timed() { timeout 60 "$@" >out.txt 2>err.txt </dev/null; }

# ---- address space -----------------------------------------------------------------------------------------
# From a limit that is too small for the program's own pages (the loader fails, 127) to one that suffices: never 124,
# always one line, and above some limit it works. Not with sanitizers, which reserve huge address ranges.
ends() { # KIB COMMAND...
    limit=$1 status=0
    shift
    checks=$((checks + 1))
    (ulimit -v "$limit" && timed "$@") || status=$?
    case $status in
    0) enough=1 && return ;;
    2) grep -q "^error: .*the address space is limited to $limit KiB (ulimit -v), .* -- raise the limit" err.txt || fail "$*: $(cat err.txt)" ;;
    1) grep -Eq '^error: (out of memory|cannot start a thread)' err.txt || fail "$*: $(cat err.txt)" ;; # limit reached
    127) grep -q 'error while loading shared libraries' err.txt || fail "$*: $(cat err.txt)" ;;
    *) fail "status $status under ulimit -v $limit: $*: $(cat err.txt)" ;;
    esac
    [ $enough = 0 ] || fail "$limit KiB are too little, and less was enough: $*"
}
if nm "$bin/train_single" | grep -q '__[at]san_init'; then
    echo "built with a sanitizer: no limit of address space"
else
    # Two threads of OpenBLAS on any machine; each has a buffer of 128 MiB.
    export OPENBLAS_NUM_THREADS=2
    for command in 'train_single' 'train_single --threads 2' 'train_dp --devices 3' 'compare_tensors'; do
        # shellcheck disable=SC2086 # the command is words
        case $command in
        train*) set -- $command --steps 2 --no-eval ;;
        *) run 'weights' "$bin/train_single" --steps 1 --no-eval --save a && set -- $command a a ;;
        esac
        program=$bin/$1 enough=0
        shift
        for kib in 30 60 120 180 200 220 240 260 280 300 320 340 400 460 500 560 600 700 2000; do
            ends ${kib}000 "$program" "$@"
        done
        [ $enough = 1 ] || fail "2 GB are not enough for $program $*"
    done
    checks=$((checks + 1))
    (ulimit -v 100000 && timed "$bin/ddprun" --nproc-per-node 1 true) || fail "ddprun needs no OpenBLAS: $(cat err.txt)"
    # ulimit -d counts OpenBLAS's buffers too.
    checks=$((checks + 1)) status=0
    (ulimit -d 100000 && timed "$bin/train_single" --steps 2 --no-eval) || status=$?
    [ $status = 2 ] && grep -q 'the data segment is limited to 100000 KiB (ulimit -d), .* lift it: ulimit -d unlimited' err.txt || fail "status $status under ulimit -d: $(cat err.txt)"
    checks=$((checks + 1)) status=0
    (ulimit -d 100000 && ulimit -v 100000 && timed "$bin/train_single" --steps 2 --no-eval) || status=$?
    [ $status = 2 ] && grep -q 'the address space is limited to 100000 KiB (ulimit -v), ' err.txt || fail "status $status under both limits: $(cat err.txt)"
    # The largest accepted set of pictures is tried; with one more picture the set is refused, because it takes more
    # than 3 GiB.
    for count in 256:'out of memory' 257:'takes more than 3 GiB'; do
        checks=$((checks + 1)) status=0
        (ulimit -v 2000000 && timed "$bin/train_single" --model segnet --data "shapes:1024x1024@${count%%:*}") || status=$?
        [ $status != 0 ] && grep -q "${count#*:}" err.txt || fail "${count%%:*} pictures: status $status: $(cat err.txt)"
    done
    unset OPENBLAS_NUM_THREADS
fi

# ---- file sizes --------------------------------------------------------------------------------------------
# limited FILE COMMAND...: with a limit of 16 blocks of 512 bytes, less than it writes: status 1, and the error names
# the file.
limited() {
    file=$1 status=0
    shift
    checks=$((checks + 1))
    (ulimit -f 16 && timed "$@") || status=$?
    [ $status = 1 ] || fail "status $status under ulimit -f: $*: $(cat err.txt)"
    grep -q "error: .*cannot write $file: .*files are limited to 8 KiB (ulimit -f) -- raise the limit" err.txt || fail "$*: $(cat err.txt)"
}
limited 'checkpoint[.0-9a-f]*optimizer' "$bin/train_single" --steps 1 --no-eval --save checkpoint
limited trace "$bin/train_single" --steps 60 --log-every 60 --no-eval --trace trace
limited 'run/steps.csv: rows are missing' "$bin/train_dp" --devices 2 --model toy --steps 100 --log-every 1 --no-eval --out run
checks=$((checks + 1))
[ ! -e checkpoint ] || fail "half a checkpoint was left"
# Also for the program's own lines, and for a rank's log file written by ddprun.
checks=$((checks + 2))
! (ulimit -f 16 && timed "$bin/train_single" --steps 300 --log-every 1 --no-eval) || fail "lines were lost: status 0"
grep -q '^error: lines on standard output were lost: .*8 KiB (ulimit -f)' err.txt || fail "lost lines: $(cat err.txt)"
(ulimit -f 16 && timed "$bin/ddprun" --nproc-per-node 1 --log-dir logs --redirects 1 seq 10000) || fail "a full log ends the job: $(cat err.txt)"
grep -q 'cannot write a log file any more: .*8 KiB (ulimit -f)' err.txt || fail "a full log: $(cat err.txt)"
checks=$((checks + 1))
! (ulimit -f 16 && timed "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --steps 1) || fail "no shared memory: status 0"
grep -q 'error: cannot make [0-9]* bytes of shared memory: .*8 KiB (ulimit -f)' err.txt || fail "no shared memory: $(cat err.txt)"
tally limits
