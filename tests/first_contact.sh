#!/usr/bin/env bash
# first_contact.sh: run this first on a machine with a GPU. It runs all checks that need one, the most important first,
# until its time is over, and writes one archive to send back. The archive's index.md is for a developer without access
# to the machine:
#
#   tests/first_contact.sh                 builds, checks for 10 minutes; writes first-contact/, first-contact.tar.gz
#   tests/first_contact.sh --minutes 60    checks for an hour, with further checks
#   tests/first_contact.sh --out DIR       writes DIR and DIR.tar.gz instead
#   tests/first_contact.sh --build DIR     uses the programs of an existing build
#   tests/first_contact.sh --only WORD     only checks whose names begin with WORD (--list)
#   tests/first_contact.sh --quick         small sizes, to try the command; figures mean nothing
#   tests/first_contact.sh --list          lists the checks, their limits in seconds and commands
#
# Each check has a limit ($FIRST_CONTACT_SECONDS: for all of them), and none depends on another's result. A check that
# hangs is diagnosed before it is ended (first_contact/hang.sh); after two of them no further check runs. A tool that is
# missing (gdb, compute-sanitizer, PyTorch) is reported and is not a failure. The status is 77 without a GPU, 1 if a check
# failed or did not end, 2 for usage.
set -uo pipefail
export LC_ALL=C
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
here=$root/tests/first_contact
build="" out=first-contact only="" quick=0 list=0 minutes=10

usage() { sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
while [[ $# -gt 0 ]]; do
    case $1 in
    --quick) quick=1 ;;
    --list) list=1 ;;
    --help | -h) usage && exit 0 ;;
    --build | --out | --only | --minutes)
        [[ $# -ge 2 ]] || { echo "error: $1 needs a value" >&2 && exit 2; }
        case $1 in
        --build) build=$2 ;;
        --out) out=$2 ;;
        --only) only=$2 ;;
        *) minutes=$2 ;;
        esac
        shift
        ;;
    *) echo "error: unknown option $1" >&2 && usage >&2 && exit 2 ;;
    esac
    shift
done
[[ $minutes =~ ^[0-9]{1,4}(\.[0-9])?$ ]] || { echo "error: --minutes $minutes is no number of minutes" >&2 && exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ $list == 0 ]] || out=$work/out
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
[[ -z $(ls -A "$out") ]] || { echo "error: $out is not empty -- give --out another folder" >&2 && exit 2; }
if [[ -z $build ]]; then
    build=$root/build
    (cd "$root" && . bench/setup.sh && setup_require 0 build tests && setup_build . build) || exit 2
fi
build=$(cd "$build" && pwd) || exit 2
bin=$build/bin
[[ -x $bin/gpu_probe ]] || { echo "skipped: this build has no CUDA" && exit 77; }
# gdb is needed for the backtraces of hanging programs.
[[ $list == 1 ]] || (cd "$root" && . bench/setup.sh && setup_require 0 backtraces) >&2

deadline=$((SECONDS + $(awk -v minutes="$minutes" 'BEGIN { print int(60 * minutes) }')))
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
. "$here/ask.sh"
. "$here/index.sh"

# ---- the machine ------------------------------------------------------------------------------------------------

printf 'ddp.c %s, %s, %s minutes%s\n' "$(git -C "$root" describe --always --dirty 2>/dev/null || echo "without git")" \
    "$(date -Is)" "$minutes" "$([[ $quick == 0 ]] || echo ", --quick: no figure means anything")" >"$work/head.txt"
: >"$work/machine.txt"
# One step. Without a GPU no further check can run.
if [[ $list == 0 ]]; then
    status=0
    in_time 120 "$bin/train_single" --device cuda --model mlp --steps 1 --no-eval >"$work/out" 2>&1 || status=$?
    [[ $status != 77 ]] || { tail -n 1 "$work/out" && rmdir "$out" && exit 77; }
    in_time 300 bash "$here/machine.sh" "$out/machine" "$build" | tee "$work/machine.txt"
    start_clocks
fi

# With two cards each rank has its own; otherwise ranks share one, as fake hosts.
share=(--fake-hosts)
cards=$(in_time 60 "$bin/ddprun" --nproc-per-node gpu echo counted 2>/dev/null | grep -c counted)
[[ $cards -lt 2 ]] || share=()
two=("$bin/ddprun" ${share[@]+"${share[@]}"} --nproc-per-node 2)

size=full
[[ $quick == 0 ]] || size=quick

# run_script NAME SECONDS SCRIPT ARGUMENT...: runs a script of first_contact/ as a check.
run_script() {
    ask "$1" "$2" bash "$here/$3.sh" "$bin" "$size" "${@:4}"
}

# run_test NAME...: runs tests of CTest, each as its own check, so that a hanging test does not affect the others.
run_test() {
    local test
    for test in "$@"; do
        ask "test $test" 240 ctest --test-dir "$build" --output-on-failure --no-tests=error -R "^$test\$"
    done
}

# Names of CTest's GPU tests that match, or do not.
gpu_tests() { # options and pattern of grep
    in_time 60 ctest --test-dir "$build" -N -L '^gpu$' | sed -n 's/^ *Test *#[0-9]*: //p' | grep "$@"
}

# ---- ten minutes: the most important checks first -----------------------------------------------------------------

# 1. Every model in every precision: the losses equal the CPU's.
run_script smoke 300 smoke

# 2. The kernels, compared with the CPU's. (test_cuda_libraries_... tests refusals that only the emulator can simulate.)
kernels='^test_(cuda_)?kernels|^test_cuda_(layout|attention|device|allocator|libraries)$'
[[ $quick == 0 ]] || kernels='^test_cuda_(layout|attention)$'
# shellcheck disable=SC2046 # here and below, the tests are words
run_test $(gpu_tests -E "$kernels")

# 3. NCCL: small and large sums, which use different protocols.
[[ $quick == 1 ]] || run_test $(gpu_tests '^test_pg_nccl')
for bytes in 4096 1048576 67108864; do
    [[ $quick == 0 || $bytes == 4096 ]] || continue
    ask "NCCL $bytes" 60 "${two[@]}" "$bin/gpu_probe" all-reduce $bytes
done

# 4. Steps replayed from a graph equal eager steps bit for bit; also with NCCL's sums.
run_script graph 300 graph ${share[@]+"${share[@]}"}

# 5. GPT-2: tokens per second.
run_script gpt2 300 gpt2

# 6. Each kernel of its step, compared with its prediction.
run_script account 240 account

# 7. One test under memcheck.
ask "memcheck" 240 bash "$here/sanitizer.sh" "$bin" memcheck quick "$sanitizer"

# ---- an hour: the rest --------------------------------------------------------------------------------------------

# 8. A rank is killed during replayed steps.
ask "kill" 240 bash "$here/kill.sh" "$bin" ${share[@]+"${share[@]}"}

# 9. All cards: bandwidth of the links from 4 KB to 1 GB; DP and DDP; NCCL with some transports disabled.
if [[ $cards -ge 2 ]]; then
    ask "bandwidth" 180 "$bin/ddprun" --nproc-per-node "$cards" "$bin/bench_allreduce" --device cuda --min-bytes 4096 \
        --max-bytes "$([[ $quick == 0 ]] && echo 1073741824 || echo 16384)"
    run_script "all cards" 600 all_cards "$cards"
    for setting in NCCL_NVLS_ENABLE=0 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_PROTO=Simple NCCL_PROTO=LL128; do
        ask "transport $setting" 60 env "$setting" "${two[@]}" "$bin/gpu_probe" all-reduce \
            "$([[ $quick == 0 ]] && echo 67108864 || echo 4096)"
    done
fi

# 10. Ranks that share a card, over NCCL's sockets and over CUDA IPC.
for bytes in 4096 67108864; do
    [[ $quick == 0 || $bytes == 4096 ]] || continue
    ask "sharing NCCL $bytes" 60 "$bin/ddprun" --fake-hosts --nproc-per-node 2 "$bin/gpu_probe" all-reduce $bytes
    if [[ -x $bin/gpu_probe_ipc ]]; then # the emulator has no IPC
        ask "sharing IPC $bytes" 60 "$bin/gpu_probe_ipc" $bytes
    fi
done

# 11. The kernels' rates relative to the card's limits; single figures for the model of a step's time.
ask "figure bounds" 240 "$bin/gpu_bounds" "$size"
for figure in graph-gap product channels-last gelu; do
    ask "figure $figure" 120 "$bin/gpu_figures" "$figure" "$size"
done
for blocking in 0 1; do
    ask "figure all-reduce blocking=$blocking" 120 env NCCL_COMM_BLOCKING=$blocking "${two[@]}" "$bin/gpu_probe" \
        all-reduce 1048576
done

# 12. cuDNN's algorithm, layout and mathematics for each convolution.
ask "plans" 300 "$bin/gpu_probe" convolutions

# 13. PyTorch's GPT-2, DP and DDP compared with ours, then its single process.
peers=(bash "$root/bench/peers/compare.sh" --bin "$bin" --device cuda $([[ $quick == 0 ]] || echo --quick --model mlp))
gpt2=(bash "$here/with_torch.sh" "$root/bench/peers/peers.py" gpt "$bin" --device cuda)
if [[ $quick == 1 ]]; then gpt2+=(--quick); else gpt2+=(--size gpt2); fi
ask "peers gpt2" 600 "${gpt2[@]}"
if [[ $cards -ge 2 ]]; then
    ask "peers gpt2 by DDP" 600 "${gpt2[@]}" --ranks "$cards"
    ask "peers DP and DDP" 1200 "${peers[@]}" --world "$cards" --out "$out/peers"
fi
ask "peers one device" 1200 "${peers[@]}" --world 1 --out "$out/peers-one"

# 14. The other GPU tests: complete programs.
[[ $quick == 1 ]] || run_test $(gpu_tests -vE "$kernels|^test_pg_nccl")

# 15. The kernels' tests under all tools of compute-sanitizer.
for tool in memcheck racecheck initcheck synccheck; do
    ask "sanitizer $tool" 1800 bash "$here/sanitizer.sh" "$bin" "$tool" "$size" "$sanitizer"
done

# ---- the archive --------------------------------------------------------------------------------------------------

[[ $list == 0 ]] || exit 0
stop_clocks
write_index
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
echo
echo "$(verdict) Send back $out.tar.gz; $out/index.md is its index."
[[ $failures == 0 ]]
