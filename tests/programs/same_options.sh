#!/bin/sh
# same_options.sh BIN_DIR: a rank with another option than the other ranks is named, with the option and both values,
# before training starts. (tests/ddp/test_options_alike.c tries all options.)
. "$(dirname "$0")/checks.sh"

# Rank 1 of 3 gets these options in addition. The timeout of a minute must not be reached.
job() {
    # shellcheck disable=SC2016 # the ranks expand it
    "$bin/ddprun" --nproc-per-node 3 sh -c '[ "$RANK" = 1 ] || shift "$1"; shift; exec "$0" --steps 2 --no-eval "$@"' \
        "$bin/${program:-train_ddp}" "$#" "$@"
}
differs() { # 'MESSAGE' OPTIONS...: the job ends with 2, and the console has the message once
    checks=$((checks + 1))
    words=$1 status=0
    shift
    job "$@" >out.txt 2>err.txt || status=$?
    [ "$status" = 2 ] || fail "status $status, not 2: $*: $(cat err.txt)"
    [ "$(grep -c -- "error: $words -- start all ranks with the same options\$" err.txt)" = 1 ] ||
        fail "no \"$words\" for $*: $(cat err.txt)"
    [ ! -s out.txt ] || fail "$*: there were steps: $(cat out.txt)"
}
differs '--zero-optimizer is off at rank 0 and on at rank 1' --zero-optimizer
differs '--hidden is 256,128 at rank 0 and 8 at rank 1' --hidden 8
for program in train_ddp train_fsdp; do
    differs '--lr is 0.08 at rank 0 and 0.1 at rank 1' --lr 0.1
done
program=
differs '--summary is off at rank 0 and on at rank 1' --summary
differs '--sync-batch-norm is off at rank 0 and on at rank 1' --sync-batch-norm
differs '--comm-hook is none at rank 0 and powersgd at rank 1' --comm-hook powersgd
differs '--data is not given at rank 0 and shapes at rank 1' --data shapes
run 'a file of one rank' job --save-init init
tally same_options
