#!/bin/sh
# run.sh: builds and runs the tests. Needs only a Debian or Ubuntu: it installs missing packages
# (as root or with --install), builds into build/, runs CTest and ends with CTest's summary.
#
#   tests/run.sh                        everything but the label `slow`
#   tests/run.sh --label equivalence    one label: unit equivalence fault parity lint slow gpu ...
#   tests/run.sh --preset asan          another build of CMakePresets.json: asan, tsan, emulator, races (the
#                                       emulator with a race checker, 3 times as long); openmpi and mpich: all
#                                       tests of MPI, the slow ones, too, as root; aarch64: a build for 64-bit ARM,
#                                       run by qemu-user (tests/aarch64)
#
# The exit status is CTest's: 0 only if no test failed; 2 for usage or set-up. A test that lacks
# hardware or software counts as skipped, never as passed; with $DDPC_NO_SKIP=1 a skip is a failure.
# $DDPC_TRIES=2 repeats a failed test once, and CTest's log shows both.
set -eu
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. bench/setup.sh

usage() {
    sed -n '2,14s/^# \{0,1\}//p' "$0"
    exit "$1"
}

label= preset=release install=0
while [ $# -gt 0 ]; do
    case $1 in
    --label | --preset)
        [ $# -ge 2 ] || usage 2 >&2
        [ "$1" = --label ] && label=$2 || preset=$2
        shift
        ;;
    --install) install=1 ;;
    --help | -h) usage 0 ;;
    *)
        setup_say "error: unknown option $1"
        usage 2 >&2
        ;;
    esac
    shift
done

build=build
[ "$preset" = release ] || build=build-$preset
groups="build tests"
case $preset in
emulator | races) groups="$groups emulator" ;;
openmpi | mpich) groups="$groups $preset clusters" ;;
aarch64) groups="$groups aarch64" ;;
esac
# shellcheck disable=SC2086 # the groups are words
setup_require "$install" $groups
[ "$preset" != release ] || (setup_require "$install" plots) || setup_say "the reports' tests will be skipped"
SETUP_PRESET=$preset
[ "$preset" != aarch64 ] || [ -e "$build/sysroot" ] || tests/aarch64/sysroot.sh "$root/$build/sysroot"
setup_configure . "$build"

# Tests that use two cores declare it (PROCESSORS). CTest gets four more jobs than cores, because many tests mostly wait
# for a deadline or for a program's single core; on two cores at most two of the tests with PROCESSORS 2 then overlap.
set -- --test-dir "$build" --output-on-failure --no-tests=error -j "$(($(nproc) + 4))"
case $preset in
# (Excluded: `compare` and `player` are about figures, the tutorials' tests about graders, and `help` runs each example
# of --help: the programs they start have their own tests. `installed` links programs without the sanitizer's runtime,
# and `gpu_modules` checks linked libraries. `model_runs` times networks of 25 to 335 million parameters; `model_file`
# and `model_buckets` run its programs, too.)
asan)
    jobs='compare|compare_mine|compare_interrupted|player|promises|scaling|measuring_.*|paper|help|model_runs'
    set -- "$@" -LE 'slow|lint|parity|grade|selftest' -E "^($jobs|installed.*|gpu_modules|tutorial_.*)\$"
    ;;
# Numbers, atomics and processes; not scripts that read the build's files or run tools and compilers.
# test_blas_threads: see tests/aarch64/README.md.
aarch64) set -- "$@" -L 'unit|equivalence|fault|parity' -LE 'slow|gpu|mpi' -E '^test_(cuda|pg_nccl|blas_threads).*' \
    -R '^(test_.*|aarch64_bits|training|bits|checkpoint_kill|zero_optimizer|mixed_precision|segnet|text)$' ;;
# Other tests run the same code as in the release build.
emulator) set -- "$@" -L 'gpu|emulator' ;;
races) set -- "$@" -L 'gpu|emulator' ;;
openmpi | mpich) set -- "$@" -L mpi ;; # including the slow ones
# ThreadSanitizer checks threads, not processes: scripts that start whole jobs would only be slow, and so would tests of
# kernels, rounding and files, which start no threads.
tsan)
    jobs='training|allreduce|allreduce_section|promises|scaling|measuring_.*|ranges|paper|segnet|checkpoint_kill|ddprun|ddprun_options'
    jobs="$jobs|chaos|compare|compare_mine|compare_interrupted|player|traces|help|bits|bits_table"
    jobs="$jobs|random_bits_quick|trainer_options|same_files|option_mixes|fsdp|random_fsdp_quick|memory_limit"
    jobs="$jobs|installed.*|gpu_modules|own_refused|zero_optimizer|text|dry_run|foreign_weights|manual.*|link|ladder|rungs"
    jobs="$jobs|model_.*|simulated|peers|scores|regress|not_regular|quiet_repetitions|results_folder"
    jobs="$jobs|bench_options|test_kernels.*|test_half|test_shapes|test_(safetensors|hostile_files)|compare_tensors"
    set -- "$@" -LE 'slow|lint|parity|grade|selftest' -E "^($jobs|corpus_.*|tutorial_.*)\$"
    ;;
*) [ "$label" = slow ] || set -- "$@" -LE slow ;;
esac
[ -z "${DDPC_TRIES:-}" ] || set -- "$@" --repeat "until-pass:$DDPC_TRIES"
[ -z "$label" ] || set -- "$@" -L "^$label\$"

# A mistyped label is reported before the build, because CTest knows its tests already.
if [ -n "$label" ] && ctest "$@" -N | grep -q '^Total Tests: 0$'; then
    setup_say "error: no test of this build has the label $label; there are $(ctest --test-dir "$build" --print-labels |
        sed -n 's/^  //p' | paste -sd ' ' -)"
    exit 2
fi
setup_make

run_tests() {
    if [ "$preset" = aarch64 ]; then
        tests/aarch64/with_qemu.sh "$root/$build/sysroot" ctest "$@"
    else
        ctest "$@"
    fi
}

# CTest's lines show the progress; the log is read below.
log=$build/tests.log
echo 0 >"$build/tests.status"
{ run_tests "$@" 2>&1 || echo $? >"$build/tests.status"; } | tee "$log"
status=$(cat "$build/tests.status")
if [ "${DDPC_NO_SKIP:-0}" = 1 ] && grep -q 'did not run:' "$log"; then
    setup_say "error: tests were skipped, and DDPC_NO_SKIP forbids it"
    [ "$status" != 0 ] || status=1
fi
exit "$status"
