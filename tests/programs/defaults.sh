#!/bin/sh
# defaults.sh BIN_DIR: the measuring programs run without arguments, with their default rounds and sizes.
. "$(dirname "$0")/checks.sh"
for program in bench_allreduce bench_step bench_scaling; do
    run "$program" timeout 300 "$bin/$program"
    [ -s out.txt ] || fail "$program printed nothing"
done
tally defaults
