# runs.sh: starts one training run and reads what it wrote. Sourced by compare.sh, which sets
# out (where everything goes), bin (the programs) and device. Where it runs: devices.sh.

deadline=600 # seconds for any one run
again=0      # 1: this run is made once more, and was counted

# data_of MODEL: what it trains on here. resnet20 wants larger pictures than the digits are.
data_of() {
    case $1 in
    toy) echo 'synthetic:10:5' ;;
    resnet20) echo 'synthetic:3x32x32:10@480' ;;
    gpt*) echo text ;;
    *) echo digits ;;
    esac
}

# Prints a command so that it can be pasted into a shell; what lies in the checkout is named from there.
quoted() {
    local word line=
    for word; do
        word=${word#"$root/"}
        [[ $word =~ ^[A-Za-z0-9_./:,=-]+$ ]] || word=${word@Q}
        line+="$word "
    done
    echo "${line% }"
}

# Begins the awk programs that read CSV files: of("name") is the row's field in that column, whichever
# it is in its file.
by_name='
    FNR == 1 { split("", at); for (i = 1; i <= NF; i++) at[$i] = i; file++; next }
    function of(name) {
        if (name in at) return $at[name]
        print "error: " FILENAME " has no column " name > "/dev/stderr"
        exit 1
    }'

# csv PROGRAM [NAME=VALUE] FILE...: runs such a program; `file` counts the files. It prints tabs between
# fields.
csv() {
    local program=$1
    shift
    awk -F, -v OFS='\t' "$by_name"$'\n'"$program" "$@"
}

now_ms() {
    date +%s%3N
}

# With --resume: has an interrupted comparison left this run whole? The command is written last.
is_finished() {
    [[ $resume == 1 && -s $out/runs/$1/command.txt ]]
}

# train NAME STRATEGY WORLD OPTION...: one run, recorded in commands.txt, files in $out/runs/NAME.
train() {
    local name=$1 folder=$out/runs/$1 strategy=$2 world=$3 begin
    shift 3
    [[ $planning == 0 ]] || { plan_run "$name" && return; }
    local -a command
    # shellcheck disable=SC2046 # the options are words
    case $strategy in
    single) command=("$bin/train_single") ;;
    dp) command=("$bin/train_dp" $(dp_devices "$world") --bind cores) ;;
    ddp | zero1)
        start_ranks "$world"
        command+=("$bin/train_ddp" --sampler blocked)
        [[ $backend != mpi ]] || command+=(--backend mpi)
        [[ $kind != cuda ]] || command+=(--backend nccl)
        [[ $strategy != zero1 ]] || command+=(--zero-optimizer)
        ;;
    esac
    # The average of the ranks' means is DP's mean to the bit if all ranks have as many rows and
    # dividing by their number is exact: the batches here are multiples of 4. Otherwise divide by the
    # global batch.
    [[ $strategy =~ ^(single|dp)$ || $world =~ ^[124]$ ]] || command+=(--normalize global)
    command+=(--device "$device" "$@" --out "$folder")

    [[ $again == 1 ]] || quoted "${command[@]}" >>"$out/commands.txt"
    if [[ $again == 0 ]] && is_finished "$name" && [[ $(<"$folder/command.txt") == $(quoted "${command[@]}") ]]; then
        run_was_there "$name"
        return 0
    fi
    draw_bar "$name"
    rm -rf "$folder"
    mkdir -p "$folder"
    current_run=$folder begin=$(now_ms)
    if timeout --foreground "$deadline" "${command[@]}" >"$folder/log.txt" 2>&1; then
        quoted "${command[@]}" >"$folder/command.txt"
        current_run=
        [[ $again == 1 ]] || run_has_ended "$name" $(($(now_ms) - begin))
        return 0
    fi
    current_run=
    clear_bar
    tail -n 20 "$folder/log.txt" >&2
    say "error: this run failed: $(quoted "${command[@]}")"
    return 1
}

# json KEY FILE: the value of a key that stands on a line of its own, without quotes; nothing for null.
json() {
    sed -n "s/^ *\"$1\": *//p" "$2" |
        sed -e 's/,$//' -e 's/^"//' -e 's/"$//' -e 's/^null$//' | head -n 1
}
