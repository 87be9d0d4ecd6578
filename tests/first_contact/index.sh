# index.sh: writes OUT/index.md, the archive's page for a developer without access to the machine. Sourced by
# first_contact.sh; rewritten after each check, so that it exists even after a forced end.
# shellcheck shell=bash

# block TITLE FILE: prints a file's lines as a block; nothing if there are none.
block() { # TITLE FILE
    [[ -s $2 ]] || return 0
    printf '\n## %s\n\n' "$1"
    sed 's/^/    /' "$2"
}

verdict() {
    local word
    printf '%d %s' "$number" "$([[ $number == 1 ]] && echo question || echo questions)"
    for word in ok skipped unfinished FAILED HANGS; do
        awk -F '\t' -v word=$word '$2 == word { n++ } END { if (n) printf ", %d %s", n, word }' "$answers"
    done
    if [[ ${#not_asked[@]} != 0 ]]; then
        printf '; %d not asked, because %s' ${#not_asked[@]} \
            "$( ((hangs < 2)) && echo "the minutes were over" || echo "two questions hang")"
    fi
    echo .
}

# Prints the logs that contain tables.
print_figures() {
    local log
    for log in "$out"/*-figure*.log "$out"/*-bandwidth*.log "$out"/*-gpt2*.log "$out"/*-account*.log "$out"/*-peers*.log; do
        [[ ! -e $log ]] || { echo "${log##*/}:" && sed '1d; s/^/    /' "$log" | tail -n 40 | cut -c -150 && echo; }
    done
}

# ---- clocks -------------------------------------------------------------------------------------------------------

# Samples each card every five seconds into OUT/clocks.csv. The name of the throttling reasons depends on the driver's
# version.
start_clocks() {
    local fields=timestamp,index,clocks.sm,clocks.mem,temperature.gpu,power.draw word name
    for word in clocks_event_reasons clocks_throttle_reasons; do
        in_time 20 nvidia-smi --query-gpu=$word.hw_slowdown --format=csv >/dev/null 2>&1 || continue
        for name in hw_slowdown hw_thermal_slowdown sw_thermal_slowdown sw_power_cap; do fields+=,$word.$name; done
        break
    done
    nvidia-smi --query-gpu=$fields --format=csv,nounits -l 5 >"$out/clocks.csv" 2>/dev/null </dev/null &
    sampler=$!
    trap 'stop_clocks; rm -rf "$work"' EXIT
}

stop_clocks() {
    kill "$sampler" 2>/dev/null
    [[ -s $out/clocks.csv ]] || rm -f "$out/clocks.csv"
}

# Prints the range of each card's clock, and its throttling reasons.
print_clocks() {
    [[ -s $out/clocks.csv ]] || return 0
    awk -F ', *' 'NR == 1 { for (i = 7; i <= NF; i++) { sub(/.*\./, "", $i); name[i] = $i } next }
        { card = $2; samples[card]++
          if (samples[card] == 1 || $3 + 0 < least[card]) least[card] = $3 + 0
          if ($3 + 0 > most[card]) most[card] = $3 + 0
          if ($5 + 0 > hottest[card]) hottest[card] = $5 + 0
          if ($6 + 0 > watts[card]) watts[card] = $6 + 0
          for (i = 7; i <= NF; i++) if ($i == "Active") slow[card, i]++ }
        END { for (card in most) {
            held = ""
            for (i in name) if (slow[card, i]) held = held sprintf(", %s in %d", name[i], slow[card, i])
            printf "GPU %s: %d to %d MHz, up to %d C and %d W in %d samples; held back: %s\n", card, least[card],
                most[card], hottest[card], watts[card], samples[card], held == "" ? "never" : substr(held, 3) } }' \
        "$out/clocks.csv" | sort
}

write_index() {
    local name
    [[ $list == 0 ]] || return 0
    print_figures >"$work/figures.txt"
    print_clocks >"$work/clocks.txt"
    {
        echo "# First contact"
        echo
        sed 's/$/  /' "$work/head.txt"
        echo
        verdict
        block "The machine" "$work/machine.txt"
        print_answers <"$answers" >"$work/answers.txt"
        for name in ${not_asked[@]+"${not_asked[@]}"}; do printf '%-36s not asked\n' "$name"; done >>"$work/answers.txt"
        block "The questions: what each said last" "$work/answers.txt"
        [[ ! -s $details ]] || { printf '\n## What went wrong\n' && cat "$details"; }
        block "Figures" "$work/figures.txt"
        block "Clocks" "$work/clocks.txt"
        cat <<'WORDS'

## What the questions ask

    smoke            every model in every precision: the CPU's loss
    test NAME        a test of the project (ctest -R NAME)
    NCCL BYTES       an all-reduce of two ranks: is the sum right, how long does it take
    graph            steps that are replayed from a CUDA graph: the same bits as without
    gpt2             GPT-2, 124 million parameters: tokens a second
    account          each kernel of its step in 16 bits: predicted and measured milliseconds
    memcheck, sanitizer TOOL   kernels' tests under compute-sanitizer
    kill             a rank is killed in the middle of replayed steps: does the job end, is the checkpoint right
    bandwidth        all-reduce over all cards, by size; busbw is what a link carries
    all cards        DataParallel and DistributedDataParallel on all cards: one card's weights, and the speed
    transport X      an all-reduce without one of NCCL's transports, or with one protocol
    sharing X        two ranks on one card, by NCCL's sockets or by CUDA's IPC
    figure X         speed of single kernels; bounds: beside what the card can do
    plans            which algorithm cuDNN has for each convolution
    peers X          PyTorch's training beside ours

## Files

    NUMBER-NAME.log               a question's command (first line) and all that it printed
    NUMBER-NAME/nccl.PID.log      NCCL's own log of a process: its version, what it found, the transports it chose
    NUMBER-NAME/flight            a rank's last collectives, written when its group failed; build/bin/flight_report reads them
    NUMBER-NAME/hang              a question that had not ended, before it was ended: backtraces, /proc, nvidia-smi, kernel
    NUMBER-NAME/blocking.log      asked again with CUDA_LAUNCH_BLOCKING=1, after an error of CUDA
    NUMBER-NAME/memcheck.log      asked again under compute-sanitizer's memcheck, after an error of CUDA
    machine/                      nvidia-smi -q, topology, versions, libraries that are loaded (ldd), the kernel's log
    clocks.csv                    clocks, temperature, power and the reasons for slowing down, every five seconds

Words: ok; skipped, the machine lacks something; FAILED; HANGS, ended by force at the question's limit; unfinished, ended
because the minutes were over. With one GPU, ranks share it as emulated hosts: NCCL then uses sockets, and times mean nothing.
WORDS
    } >"$out/index.md.new"
    mv "$out/index.md.new" "$out/index.md"
}
