#!/bin/sh
# ddprun_gpus.sh BIN FOLDER: `ddprun --nproc-per-node gpu` starts a rank for each GPU that the CUDA driver counts. The
# driver is simulated by FOLDER/libcuda.so.1 (fake_libcuda.c); FAKE_DRIVER selects its behaviour. A driver that is
# missing, has no GPU, fails, crashes or hangs is an error that names the cause, and the launcher itself never loads it.
# shellcheck disable=SC2016 # the ranks' shells expand what is quoted
. "$(dirname "$0")/../programs/checks.sh"
export LD_LIBRARY_PATH="$2${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

for gpus in 1 3 12; do
    run "$gpus GPUs" env FAKE_DRIVER="$gpus" "$bin/ddprun" --nproc-per-node gpu sh -c 'echo "of $WORLD_SIZE;"'
    [ "$(grep -c "of $gpus;" out.txt)" = "$gpus" ] || fail "$gpus GPUs, but these ranks: $(cat out.txt)"
done

run "the launcher" env FAKE_DRIVER=1 "$bin/ddprun" --nproc-per-node gpu sh -c 'cat "/proc/$PPID/maps"'
grep -q '\[stack\]' out.txt || fail "the launcher's maps were not read"
! grep -q libcuda out.txt || fail "the launcher has loaded the driver"

counts() { # STATUS WORDS DRIVER [options]
    status=$1 words=$2 driver=$3
    shift 3
    refuse "$status" "--nproc-per-node gpu: $words" \
        env FAKE_DRIVER="$driver" "$bin/ddprun" --nproc-per-node gpu "$@" true
}
counts 77 "no GPU here (CUDA: the driver finds no device)" 0
counts 77 "no GPU here (CUDA: the driver finds no device)" absent
counts 1 "the GPUs cannot be counted: the CUDA driver's error is 999" error
counts 1 "the CUDA driver crashed when it counted the GPUs" crashes
counts 1 "the CUDA driver did not count the GPUs within 0.5 s (--start-timeout)" hangs --start-timeout 0.5
: >libcuda.so.1 # an empty file, which the loader finds first
LD_LIBRARY_PATH=$PWD:$LD_LIBRARY_PATH counts 77 "no GPU here (CUDA: there is no driver)" 3
tally ddprun_gpus
