#!/usr/bin/env bash
# hang.sh FOLDER BIN_DIR PID...: diagnoses the processes of a hanging check before they are ended. Writes FOLDER/hang:
# backtraces of all threads, /proc of each process, the ranks' flight records, nvidia-smi, kernel messages; and
# summary.md, which first_contact.sh puts into its index. Nothing here waits for the hanging processes.
set -uo pipefail
folder=$1 bin=$2
shift 2
hang=$folder/hang
mkdir -p "$hang"

# Condenses gdb's backtraces: per thread, from the first one on, the ten innermost calls, innermost first, without
# addresses and arguments.
calls() {
    awk 'function flush() { if (calls != "") text = "      " name ": " calls "\n" text; calls = ""; count = 0 }
        /^Thread / { flush(); name = "thread " $2; if (match($0, /"[^"]*"/)) name = name " " substr($0, RSTART, RLENGTH) }
        /^#/ && count < 10 {
            line = $0
            sub(/^#[0-9]+ +(0x[0-9a-f]+ in )?/, "", line)
            sub(/ *\(.*/, "", line)
            if (line != "??") { calls = calls (count ? " < " : "") line; count++ }
        }
        END { flush(); printf "%s", text }' "$1"
}

# Selects programs: the shells around them are of no interest.
is_program() {
    case $(readlink "/proc/$1/exe") in
    "" | */sleep | */bash | */dash | */sh | */env | */timeout | */ctest | */cmake | */setsid) return 1 ;;
    esac
}

look_at() { # PID
    local task name
    {
        tr '\0' ' ' <"/proc/$1/cmdline" && echo
        tr '\0' '\n' <"/proc/$1/environ" | grep -E '^(RANK|LOCAL_RANK|WORLD_SIZE|CUDA_|NCCL_|DDPC_)'
        for name in status stack maps; do echo "== $name" && cat "/proc/$1/$name"; done
        for task in "/proc/$1/task/"*; do
            echo "== thread ${task##*/}: $(cat "$task/comm"), in the kernel: $(cat "$task/wchan"), $(cat "$task/syscall")"
        done
    } >"$hang/process.$1.txt" 2>&1
    command -v gdb >/dev/null || return 0
    timeout -k 5 60 gdb -nx -batch -p "$1" -ex 'thread apply all backtrace 40' >"$hang/backtrace.$1.txt" 2>&1
}

# A rank writes its records when its pipe is written to (ddp/group/flight_trigger.h).
request_flight_records() {
    local pipe
    for pipe in "$folder"/rank*.pipe; do
        [[ ! -p $pipe ]] || timeout 2 sh -c 'echo >"$0"' "$pipe"
    done
    sleep 1
}

for pid in "$@"; do
    ! is_program "$pid" || look_at "$pid" &
done
timeout -k 5 20 nvidia-smi >"$hang/nvidia-smi.txt" 2>&1 &
timeout -k 5 20 nvidia-smi -q >"$hang/nvidia-smi-q.txt" 2>&1 &
(timeout 10 dmesg -T || timeout 10 journalctl -k -n 400 --no-pager) >"$hang/kernel.txt" 2>&1 &
request_flight_records
wait

{
    echo "Its processes then, and the calls of each thread, the innermost first:"
    echo
    for pid in "$@"; do
        is_program "$pid" || continue
        rank=$(sed -n 's/^RANK=//p' "$hang/process.$pid.txt")
        echo "    ${rank:+rank $rank, }process $pid: $(head -n 1 "$hang/process.$pid.txt" | cut -c -120)"
        if grep -q '^Thread ' "$hang/backtrace.$pid.txt" 2>/dev/null; then
            calls "$hang/backtrace.$pid.txt"
        else
            grep '^== thread' "$hang/process.$pid.txt" | sed 's/^== /      /'
            echo "      (no backtrace: $(tail -n 1 "$hang/backtrace.$pid.txt" 2>/dev/null || echo "gdb is not installed"))"
        fi
    done
    echo
    if [[ -n $(ls "$folder/flight" 2>/dev/null) ]]; then
        printf 'What the ranks recorded of their collectives (flight_report; those of a replayed graph are not recorded):\n\n'
        timeout 20 "$bin/flight_report" "$folder/flight" 2>&1 | head -n 30 | sed 's/^/    /'
    else
        echo "No rank wrote flight records: no group was open, or its process no longer answers."
    fi
    printf '\nThe GPUs then (all of it in hang/nvidia-smi.txt):\n\n'
    (grep -E '%|MiB|ERR' "$hang/nvidia-smi.txt" || echo "nvidia-smi said: $(tail -n 1 "$hang/nvidia-smi.txt")") |
        head -n 20 | sed 's/^/    /'
    printf '\nXid messages of the kernel: '
    grep -iE 'NVRM|Xid' "$hang/kernel.txt" | tail -n 5 >"$hang/xid.txt"
    if [[ -s $hang/xid.txt ]]; then
        printf '\n\n' && sed 's/^/    /' "$hang/xid.txt"
    elif grep -qE 'not permitted|No such file|not found' "$hang/kernel.txt" || [[ ! -s $hang/kernel.txt ]]; then
        echo "unknown, the kernel's log cannot be read here."
    else
        echo "none."
    fi
    echo
} >"$hang/summary.md"
