# ask.sh: runs a check and records its result. Sourced by first_contact.sh, whose out, work, bin, only, list, deadline and
# cards it uses; index.sh writes the records.
#
# A check is a command with a time limit. Its output is OUT/NUMBER-NAME.log; NCCL's logs, flight records and the
# diagnosis of a hang are in the folder OUT/NUMBER-NAME. Its processes have FIRST_CONTACT_QUESTION in their
# environment, by which they are found in any session or group.
#
#   ok          status 0; the log's last line is the result
#   skipped     status 77: the machine lacks something
#   FAILED      another status, or processes were left behind. After an error of CUDA it is repeated, with blocking
#               launches and under compute-sanitizer's memcheck
#   HANGS       it did not end within its limit: hang.sh diagnoses its processes, then they are ended
#   unfinished  as HANGS, but the total time was over before its own limit
# shellcheck shell=bash

number=0 failures=0 hangs=0 not_asked=()
answers=$work/answers.tsv # a line per check: name, word, seconds, text
details=$work/details.md # of checks that failed or hang
: >"$answers"
: >"$details"

answer() { # NAME WORD SECONDS TEXT
    case $2 in FAILED | HANGS) failures=$((failures + 1)) ;; esac
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$answers"
    tail -n 1 "$answers" | print_answers
    write_index
}

print_answers() {
    awk -F '\t' '{ printf "%-36s %-10s %4d s  %s\n", $1, $2, $3, substr($4, 1, 150) }'
}

# Prints the error in a log, or its last line.
last_words() {
    local line
    line=$(grep -a -m 1 -E '(^|: )error: |FAILED|CHECK\(' "$1" || tail -n 1 "$1")
    printf '%s\n' "${line:-it printed nothing}"
}

# in_time SECONDS COMMAND...: runs one of our own commands, which may hang as well on a faulty card.
in_time() {
    timeout -k 5 "${FIRST_CONTACT_SECONDS:-$1}" "${@:2}" </dev/null
}

# Prints the live processes of a check.
processes_of() { # MARK
    grep -slzx "FIRST_CONTACT_QUESTION=$1" /proc/[0-9]*/environ | cut -d / -f 3 | sort -n
}

# end_processes MARK: ends the remaining processes of a check, and prints those that survive SIGKILL.
end_processes() {
    local signal pid tries
    for signal in TERM KILL; do
        for pid in $(processes_of "$1"); do kill -$signal "$pid" 2>/dev/null; done
        for ((tries = 0; tries < 25; tries++)); do
            [[ -n $(processes_of "$1") ]] || return 0
            sleep 0.2
        done
    done
    for pid in $(processes_of "$1"); do
        echo "process $pid outlives SIGKILL, in state $(ps -o stat=,wchan=,args= -p "$pid")"
    done
}

# run_marked MARK SECONDS FOLDER COMMAND...: sets status; sets hung to 1 if the command is still running at its limit.
run_marked() {
    local mark=$1 seconds=$2 folder=$3 pid begin=$SECONDS flight=()
    shift 3
    # Not for CTest's tests, which open many groups; some of them test the records.
    [[ $1 == ctest ]] || flight=("DDPC_FLIGHT_DIR=$folder/flight" "DDPC_FLIGHT_PIPE=$folder/rank")
    (cd "$work" && exec setsid env "FIRST_CONTACT_QUESTION=$mark" NCCL_DEBUG=INFO \
        "NCCL_DEBUG_FILE=$folder/nccl.%p.log" ${flight[@]+"${flight[@]}"} "$@") </dev/null &
    pid=$! hung=0 status=0
    { # without bash's message about how it ended
        while kill -0 $pid; do
            ((SECONDS - begin < seconds)) || { hung=1 && return; }
            sleep 0.1
        done
        wait $pid || status=$?
    } 2>/dev/null
}

is_cuda_error() { # LOG
    grep -aqE 'cudaError[A-Z]|CUBLAS_STATUS_[A-RT-Z]|CUDNN_STATUS_[A-RT-Z]|[Uu]nhandled cuda error|illegal memory access' "$1"
}

# ask_again HOW LOG FOLDER COMMAND...: repeats a failed check; prints one line of its output
ask_again() {
    local how=$1 log=$2 folder=$3
    shift 3
    run_marked "$$-$number-again" "${FIRST_CONTACT_SECONDS:-180}" "$folder" "$@" >"$log" 2>&1
    end_processes "$$-$number-again" >>"$log"
    printf -- '- %s: %s: `%s`, in %s\n' "$how" "$([[ $hung == 1 ]] && echo hangs || echo "status $status")" \
        "$(last_words "$log")" "${log#"$out"/}"
}

ask_again_after_cuda_error() { # FOLDER COMMAND...
    local folder=$1
    shift
    echo "An error of CUDA: asked again,"
    ask_again "with CUDA_LAUNCH_BLOCKING=1, where the failing call names the kernel" \
        "$folder/blocking.log" "$folder" env CUDA_LAUNCH_BLOCKING=1 "$@"
    if [[ -n $sanitizer ]]; then
        ask_again "under memcheck" "$folder/memcheck.log" "$folder" \
            "$sanitizer" --tool memcheck --target-processes all --error-exitcode 9 "$@"
        grep -a -m 3 -E '^=+ +(Invalid|Program hit|at |Address)' "$folder/memcheck.log" | sed 's/^/    /'
    else
        echo "- not under memcheck: compute-sanitizer is not installed"
    fi
}

# Writes the index's entry for a check that failed or hangs.
describe() { # WORD NAME LOG FOLDER
    local word=$1 name=$2 log=$3 folder=$4
    printf '\n### %s: %s\n\n' "$word" "$name"
    [[ $word != HANGS ]] || printf 'It had not ended after %s s, and was ended by force.\n' "$seconds"
    printf 'The command and the end of what it printed (%s):\n\n' "${log#"$out"/}"
    { head -n 1 "$log" && sed 1d "$log" | tail -n 12; } | sed "s|$root/||g; s/^/    /" | cut -c -160
    echo
    if [[ -s $folder/hang/summary.md ]]; then
        cat "$folder/hang/summary.md"
    elif [[ -n $(ls "$folder/flight" 2>/dev/null) ]]; then
        printf 'What the ranks recorded of their collectives (flight_report):\n\n'
        in_time 20 "$bin/flight_report" "$folder/flight" 2>&1 | head -n 30 | sed 's/^/    /'
        echo
    fi
}

# After a check has ended by itself: sets word and text from its status, log and processes.
judge() { # MARK LOG
    case $status in
    0) word=ok text=$(grep -av '^#' "$2" | tail -n 1) ;; # lines with "#" are a table's notes
    77) word=skipped text=$(last_words "$2") ;;
    *) word=FAILED text="status $status: $(last_words "$2")" ;;
    esac
    [[ -n $(processes_of "$1") ]] || return 0
    sleep 2 # for processes that are about to end
    [[ -n $(processes_of "$1") ]] || return 0
    word=FAILED text="left processes behind: $(processes_of "$1" | paste -sd ' ' -)"
    ps -o pid=,ppid=,stat=,etime=,args= -p "$(processes_of "$1" | paste -sd , -)" >>"$2"
}

# ask NAME SECONDS COMMAND...
ask() {
    local name=$1 seconds=${FIRST_CONTACT_SECONDS:-$2} begin=$SECONDS left=$((deadline - SECONDS))
    local folder log mark word text status hung
    [[ $1 == "$only"* ]] || return 0
    [[ $list == 0 ]] || { printf '%s\t%s' "$1" "$2" && printf '\t%s' "${@:3}" && echo && return; }
    ((hangs < 2 && left >= 5)) || { not_asked+=("$1") && return 0; }
    shift 2
    number=$((number + 1)) mark=$$-$number
    folder=$out/$(printf '%02d' $number)-${name// /-} log=$out/$(printf '%02d' $number)-${name// /-}.log
    mkdir -p "$folder"
    printf '$ %s\n' "$*" >"$log"
    run_marked "$mark" $((left < seconds ? left : seconds)) "$folder" "$@" >>"$log" 2>&1
    if [[ $hung == 0 ]]; then
        judge "$mark" "$log"
    else
        word=unfinished text="it had not ended after $((SECONDS - begin)) s"
        ((left < seconds)) || { word=HANGS && hangs=$((hangs + 1)); }
        # shellcheck disable=SC2046 # the processes are words
        timeout -k 5 150 bash "$here/hang.sh" "$folder" "$bin" $(processes_of "$mark") </dev/null
    fi
    end_processes "$mark" >"$work/orphans.txt"
    if [[ $word == FAILED || $word == HANGS ]]; then
        describe "$word" "$name" "$log" "$folder" >>"$details"
        sed 's/^/Afterwards: /' "$work/orphans.txt" >>"$details"
        [[ $word != FAILED || $name == sanitizer* ]] || ! is_cuda_error "$log" ||
            ask_again_after_cuda_error "$folder" "$@" >>"$details"
    fi
    rm -f "$folder"/rank*.pipe
    rmdir "$folder/flight" "$folder" 2>/dev/null # if they are empty
    answer "$name" "$word" $((SECONDS - begin)) "$text"
}
