# runs.sh: starts one run, keeps it for --resume, and reads its files. Sourced by compare.sh and by the commands that
# add a section to its report. These set out (the folder of results), resume (1 with --resume) and bin (the programs);
# compare.sh also sets device. The devices of a run: devices.sh.
# A run's files are in $out/runs/NAME: its programs' files; output.txt and log.txt, its stdout and stderr; and
# command.txt, which is written last, after a success. So a folder with command.txt is a complete run, and with --resume
# it is not made again if its command is the same. All tables are made from these folders.

deadline=600 # seconds for each run
again=0 # 1: runs are repeated, and are in commands.txt already

# data_of MODEL: prints the data on which a model is trained here. resnet20 needs larger pictures than the digits.
data_of() {
    case $1 in
    toy) echo 'synthetic:10:5' ;;
    resnet20) echo 'synthetic:3x32x32:10@480' ;;
    gpt*) echo text ;;
    *) echo digits ;;
    esac
}

# Prints a command in a form that can be pasted into a shell, with paths relative to the checkout.
quoted() {
    local word line=
    for word; do
        word=${word#"$root/"}
        [[ $word =~ ^[A-Za-z0-9_./:,=-]+$ ]] || word=${word@Q}
        line+="$word "
    done
    echo "${line% }"
}

# The first part of awk programs that read CSV files: of("name") is the row's field in that column, at any position.
by_name='
    FNR == 1 { split("", at); for (i = 1; i <= NF; i++) at[$i] = i; file++; next }
    function of(name) {
        if (name in at) return $at[name]
        print "error: " FILENAME " has no column " name > "/dev/stderr"
        exit 1
    }'

# csv PROGRAM [NAME=VALUE] FILE...: runs an awk program after that part. Its variable `file` is the number of the
# current file, from 1; its output fields are separated by tabs.
csv() {
    local program=$1
    shift
    awk -F, -v OFS='\t' "$by_name"$'\n'"$program" "$@"
}

# is_finished NAME [COMMAND...]: true if --resume was given and the interrupted call has completed this run with the
# same command.
is_finished() {
    local made=$out/runs/$1/command.txt
    [[ $resume == 1 && -s $made ]] || return 1
    shift
    [[ $# == 0 || $(<"$made") == "$(quoted "$@")" ]]
}

# make_run NAME COMMAND...: makes the run, and replaces one of that name. Fails if the command does.
make_run() {
    local folder=$out/runs/$1 log=$out/runs/$1/log.txt
    shift
    rm -rf -- "$folder"
    mkdir -p "$folder"
    [[ $live == 0 || ! -t 2 ]] || log=/dev/stderr
    timeout --foreground "${run_deadline:-$deadline}" "$@" >"$folder/output.txt" 2>"$log" </dev/null 9<&- || return 1
    quoted "$@" >"$folder/command"
    mv "$folder/command" "$folder/command.txt" # atomic, so that Ctrl-C leaves no partial file
}

# show_failure NAME COMMAND...: prints the last lines of a failed run, and its command.
show_failure() {
    tail -qn 20 "$out/runs/$1"/{output,log}.txt >&2 || true
    shift
    echo "error: this run failed: $(quoted "$@")" >&2
}

# try_run NAME COMMAND...: makes the run, unless the interrupted call has completed it. Its command is added to
# commands.txt in both cases. While runs are only planned, it is counted.
try_run() {
    local begin
    [[ $planning == 0 ]] || { planned_runs=$((planned_runs + 1)) && return; }
    [[ $again == 1 ]] || quoted "${@:2}" >>"$out/commands.txt"
    if [[ $again == 0 ]] && is_finished "$@"; then
        run_was_there "$1"
        return
    fi
    current_run=$1 begin=${EPOCHREALTIME/./} # microseconds
    make_run "$@" || { current_run= && return 1; }
    current_run=
    [[ $again == 1 ]] || run_has_ended $(((${EPOCHREALTIME/./} - begin) / 1000))
}

# run_once NAME COMMAND...: the same; prints the failure of a failed run.
run_once() {
    try_run "$@" || { show_failure "$@" && return 1; }
}

# train NAME STRATEGY WORLD OPTION...: trains once, like run_once; the files are in $out/runs/NAME.
train() {
    local name=$1 strategy=$2 like=$2 world=$3 model=$5 begin=$SECONDS
    local -a command
    shift 3 # the remaining options begin with --model
    [[ $planning == 0 ]] || { planned_runs=$((planned_runs + 1)) && return; }
    [[ $strategy != mine ]] || like=$mine_like
    start "$like" "$world"
    # The average of the ranks' means is bit-identical to DP's mean if all ranks have equally many rows and a division
    # by their number is exact: the batches here are multiples of 4. Otherwise the sum is divided by the global batch.
    [[ $like =~ ^(single|dp)$ || $world =~ ^[124]$ ]] || command+=(--normalize global)
    [[ $strategy != mine ]] || command+=("${mine_options[@]}")
    command+=(--device "$device" "$@" --out "$out/runs/$name")
    if [[ $strategy != mine ]]; then
        run_once "$name" "${command[@]}"
    elif is_mine_to_run "$name" "$model" "$world"; then
        run_deadline=$mine_deadline try_run "$name" "${command[@]}" || mine_run_failed "$name" "$model" "$world" $((SECONDS - begin))
    fi
}

# json KEY FILE: prints the value of a key that is on its own line, without quotes; nothing for null.
json() {
    sed -n "/^ *\"$1\": */ { s///; s/,\$//; s/^\"//; s/\"\$//; s/^null\$//; p; q }" "$2"
}
