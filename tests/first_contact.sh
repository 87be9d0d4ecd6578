#!/usr/bin/env bash
# first_contact.sh: the first thing to run on a machine with a GPU. It measures everything that cannot be known
# without one, in the order of what would hurt most, and leaves one folder to send back, with an index page:
#
#   tests/first_contact.sh                 builds, asks all, writes first-contact/summary.txt
#   tests/first_contact.sh --out DIR       writes there instead
#   tests/first_contact.sh --build DIR     asks the programs of a build that is there, and builds nothing
#   tests/first_contact.sh --only WORD     only the questions whose names begin so: plans, kernels, sanitizer,
#                                          graph, transport, hosts, kill, figure, peers
#   tests/first_contact.sh --quick         shorter questions: tries the command, and measures no speed
#   tests/first_contact.sh --list          names the questions and their commands, and asks none
#
# Each question has a time after which it is ended by force ($FIRST_CONTACT_SECONDS: for all of them), and none
# depends on another's answer. What a question printed is in DIR/NUMBER-NAME.log. A tool that is missing
# (compute-sanitizer, PyTorch) is a line, not a failure. The status is 77 without a GPU, 1 if an answer was wrong
# or none came, 2 for usage.
set -uo pipefail
export LC_ALL=C
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build="" out=first-contact only="" quick=0 list=0

usage() { sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
while [[ $# -gt 0 ]]; do
    case $1 in
    --quick) quick=1 ;;
    --list) list=1 ;;
    --help | -h) usage && exit 0 ;;
    --build | --out | --only)
        [[ $# -ge 2 ]] || { echo "error: $1 needs a value" >&2 && exit 2; }
        case $1 in
        --build) build=$2 ;;
        --out) out=$2 ;;
        *) only=$2 ;;
        esac
        shift
        ;;
    *) echo "error: unknown option $1" >&2 && usage >&2 && exit 2 ;;
    esac
    shift
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ $list == 0 ]] || out=$work
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
if [[ -z $build ]]; then
    build=$root/build
    (cd "$root" && . bench/setup.sh && setup_require 0 build tests && setup_build . build) || exit 2
fi
build=$(cd "$build" && pwd) || exit 2
bin=$build/bin
[[ -x $bin/gpu_probe ]] || { echo "skipped: this build has no CUDA" && exit 77; }

# ---- questions ------------------------------------------------------------------------------------------------

number=0 failures=0
summary=$out/summary.txt

answer() { # NAME ok|FAILED|HANGS|skipped SECONDS TEXT
    [[ $2 == ok || $2 == skipped ]] || failures=$((failures + 1))
    printf '%-30s %-7s %5s s  %s\n' "$1" "$2" "$3" "$4" | cut -c -200 | tee -a "$summary"
}

# What stands for a log in the index: the error, or the last line.
last_words() {
    local line
    line=$(grep -a -m 1 -E '(^|: )error: |FAILED' "$1" || tail -n 1 "$1")
    printf '%s\n' "${line:-it printed nothing}"
}

# ask NAME SECONDS COMMAND...: its log is NUMBER-NAME.log, whose last line is the answer.
ask() {
    local name=$1 seconds=${FIRST_CONTACT_SECONDS:-$2} begin=$SECONDS status=0 log
    shift 2
    [[ $name == "$only"* ]] || return 0
    [[ $list == 0 ]] || { printf '%s' "$name" && printf '\t%s' "$@" && echo && return; }
    number=$((number + 1))
    log=$out/$(printf '%02d' $number)-${name// /-}.log
    printf '$ %s\n' "$*" >"$log"
    (cd "$work" && exec timeout -k 5 "$seconds" "$@") >>"$log" 2>&1 </dev/null || status=$?
    case $status in
    0) answer "$name" ok $((SECONDS - begin)) "$(tail -n 1 "$log")" ;;
    77) answer "$name" skipped $((SECONDS - begin)) "$(tail -n 1 "$log")" ;;
    124 | 137) answer "$name" HANGS $((SECONDS - begin)) "ended by force after $seconds s" ;;
    *) answer "$name" FAILED $((SECONDS - begin)) "status $status: $(last_words "$log")" ;;
    esac
}

# in_time SECONDS COMMAND...: what is not a question, but may hang as well where a card is sick.
in_time() {
    timeout -k 5 "${FIRST_CONTACT_SECONDS:-$1}" "${@:2}" </dev/null
}

# ---- what would hurt most, first -------------------------------------------------------------------------------

{
    echo "first contact of $(git -C "$root" describe --always --dirty 2>/dev/null || echo "ddp.c") on $(date -Is)"
    in_time 20 nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null ||
        echo "nvidia-smi says nothing"
    echo "each line: question, answer, seconds, what it said last; the whole of it is in NUMBER-QUESTION.log"
    echo
} >"$summary"
in_time 20 nvidia-smi topo -m >"$out/machine.txt" 2>&1
grep -E '^(CUDA|CMAKE_CUDA|NCCL|CUDNN|WITH)_' "$build/CMakeCache.txt" >>"$out/machine.txt"

# 0. One step. Without a GPU there is nothing more to ask.
if [[ $list == 0 ]]; then
    status=0
    in_time 120 "$bin/train_single" --device cuda --model mlp --steps 1 --no-eval >"$work/out" 2>&1 || status=$?
    [[ $status != 77 ]] || { tail -n 1 "$work/out" | tee -a "$summary" && exit 77; }
    [[ $status != 124 && $status != 137 ]] || answer "one step" HANGS 120 "train_single on one GPU was ended by force"
fi

# Two ranks have a card each where there are two; otherwise they share one.
share=(--fake-hosts)
cards=$(in_time 60 "$bin/ddprun" --nproc-per-node gpu echo counted 2>/dev/null | grep -c counted)
[[ $cards -lt 2 ]] || share=()

size=full
[[ $quick == 0 ]] || size=quick

# 1. Which algorithm, layout and mathematics cuDNN has for each convolution.
ask "plans" 300 "$bin/gpu_probe" convolutions

# 2. All of CTest's tests of GPUs, the kernels first. A test of its own each: one that hangs takes no other along.
gpu_tests() {
    in_time 60 ctest --test-dir "$build" -N -L '^gpu$' | sed -n 's/^ *Test *#[0-9]*: //p' |
        awk '{ print /^test_(cuda_)?kernels/ ? 1 : /^test_cuda/ ? 2 : /^test_/ ? 3 : 4, $1 }' | sort | cut -d ' ' -f 2
}
for test in $([[ $quick == 1 ]] && echo test_cuda_layout || gpu_tests); do
    ask "kernels $test" 900 ctest --test-dir "$build" --output-on-failure --no-tests=error -R "^$test\$"
done

# 3. What the tools of CUDA see in the short ones.
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for tool in memcheck racecheck initcheck synccheck; do
    ask "sanitizer $tool" 1800 bash "$root/tests/first_contact/sanitizer.sh" "$bin" "$tool" "$size" "$sanitizer"
done

# 4. A step that is replayed from a graph is the step itself, bit for bit.
ask "graph" 900 bash "$root/tests/first_contact/graph.sh" "$bin" "$size" ${share[@]+"${share[@]}"}

# 5. Small sums and large ones, for which NCCL takes other protocols: between two cards, with the transports that NCCL
# chooses (in NCCL-*.log), then with some of them disabled; by ranks that share a card (sockets); by CUDA's own IPC.
for bytes in 4096 1048576 67108864; do
    [[ $quick == 0 || $bytes == 4096 ]] || continue
    for setting in NCCL_DEBUG=INFO NCCL_NVLS_ENABLE=0 NCCL_P2P_DISABLE=1; do
        [[ $cards -ge 2 ]] || continue
        ask "transport $setting $bytes" 60 env NCCL_DEBUG=INFO "NCCL_DEBUG_FILE=$out/NCCL-$setting-$bytes.%p.log" \
            "$setting" "$bin/ddprun" --nproc-per-node 2 "$bin/gpu_probe" all-reduce $bytes
    done
    ask "hosts NCCL $bytes" 60 "$bin/ddprun" --fake-hosts --nproc-per-node 2 "$bin/gpu_probe" all-reduce $bytes
    if [[ -x $bin/gpu_probe_ipc ]]; then # the emulator has no IPC
        ask "hosts IPC $bytes" 60 "$bin/gpu_probe_ipc" $bytes
    fi
done

# 6. A rank that is killed in the middle of replayed steps.
ask "kill" 240 bash "$root/tests/first_contact/kill.sh" "$bin" ${share[@]+"${share[@]}"}

# 7. Single figures, for the model of what a step costs.
for figure in graph-gap product channels-last; do
    ask "figure $figure" 120 "$bin/gpu_figures" "$figure" "$size"
done
for blocking in 0 1; do
    ask "figure all-reduce blocking=$blocking" 120 env NCCL_COMM_BLOCKING=$blocking "$bin/ddprun" \
        ${share[@]+"${share[@]}"} --nproc-per-node 2 "$bin/gpu_probe" all-reduce 1048576
done

# 8. The same training by PyTorch, in all its modes.
peers=(--device cuda --extra)
[[ $quick == 0 ]] || peers+=(--quick --model mlp --precision fp32)
ask "peers" 7200 bash "$root/bench/peers/compare.sh" --bin "$bin" --one-device "${peers[@]}"
if [[ $cards -ge 2 ]]; then
    ask "peers two GPUs" 3600 bash "$root/bench/peers/compare.sh" --bin "$bin" --device cuda --world 2 \
        --out "$out/peers"
fi

[[ $list == 0 ]] || exit 0
echo >>"$summary"
echo "$number questions, $failures failures; send back the folder $out" | tee -a "$summary"
[[ $failures == 0 ]]
