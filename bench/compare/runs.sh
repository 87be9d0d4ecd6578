# runs.sh: starts one run, keeps it for --resume, and reads what it wrote. Sourced by compare.sh and by the commands
# that add a section to its report. These set out (where everything goes), resume (1 with --resume) and bin (the
# programs); compare.sh also sets device. On which devices a run computes: devices.sh.
#
# A run's files are in $out/runs/NAME: what its programs write; output.txt and log.txt, its stdout and stderr; and
# command.txt, which comes last, when all went well. So a folder with command.txt is a whole run, and with --resume
# it is not made again if it was made by the same command. All tables are made from these folders.

deadline=600 # seconds for any one run
again=0      # 1: runs are made a second time, so that commands.txt has them already

# data_of MODEL: prints the data on which a model is trained here. resnet20 wants larger pictures than the digits are.
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

# csv PROGRAM [NAME=VALUE] FILE...: runs an awk program that begins so. Its variable `file` is the number of the file
# that is being read, from 1, and what it prints has tabs between the fields.
csv() {
    local program=$1
    shift
    awk -F, -v OFS='\t' "$by_name"$'\n'"$program" "$@"
}

now_ms() {
    date +%s%3N
}

# is_finished NAME [COMMAND...]: true if --resume was given and an interrupted call has left this run whole, made by
# this very command.
is_finished() {
    local made=$out/runs/$1/command.txt
    [[ $resume == 1 && -s $made ]] || return 1
    shift
    [[ $# == 0 || $(<"$made") == "$(quoted "$@")" ]]
}

# make_run NAME COMMAND...: makes the run, also if there is one of that name already. Fails if the command does.
make_run() {
    local folder=$out/runs/$1 log=$out/runs/$1/log.txt
    shift
    rm -rf -- "$folder"
    mkdir -p "$folder"
    [[ $live == 0 || ! -t 2 ]] || log=/dev/stderr
    timeout --foreground "${run_deadline:-$deadline}" "$@" >"$folder/output.txt" 2>"$log" </dev/null 9<&- || return 1
    quoted "$@" >"$folder/command"
    mv "$folder/command" "$folder/command.txt" # there with all it holds, also where Ctrl-C comes now
}

# show_failure NAME COMMAND...: says what a run that failed has written last, and which command it was.
show_failure() {
    tail -qn 20 "$out/runs/$1"/{output,log}.txt >&2 || true
    shift
    echo "error: this run failed: $(quoted "$@")" >&2
}

# try_run NAME COMMAND...: makes the run, unless an interrupted call has left it whole. commands.txt gets its command in either
# case. While the runs are only planned it counts this one.
try_run() {
    local begin
    [[ $planning == 0 ]] || { planned_runs=$((planned_runs + 1)) && return; }
    [[ $again == 1 ]] || quoted "${@:2}" >>"$out/commands.txt"
    if [[ $again == 0 ]] && is_finished "$@"; then
        run_was_there "$1"
        return
    fi
    current_run=$1 begin=$(now_ms)
    make_run "$@" || { current_run= && return 1; }
    current_run=
    [[ $again == 1 ]] || run_has_ended $(($(now_ms) - begin))
}

# run_once NAME COMMAND...: the same; says why a run failed.
run_once() {
    try_run "$@" || { show_failure "$@" && return 1; }
}

# train NAME STRATEGY WORLD OPTION...: trains once, as run_once does; the files are in $out/runs/NAME.
train() {
    local name=$1 strategy=$2 like=$2 world=$3 model=$5 begin=$SECONDS
    local -a command
    shift 3 # what follows begins with --model
    [[ $planning == 0 ]] || { planned_runs=$((planned_runs + 1)) && return; }
    [[ $strategy != mine ]] || like=$mine_like
    start "$like" "$world"
    # The average of the ranks' means is DP's mean to the bit if all ranks have as many rows and
    # dividing by their number is exact: the batches here are multiples of 4. Otherwise divide by the
    # global batch.
    [[ $like =~ ^(single|dp)$ || $world =~ ^[124]$ ]] || command+=(--normalize global)
    [[ $strategy != mine ]] || command+=("${mine_options[@]}")
    command+=(--device "$device" "$@" --out "$out/runs/$name")
    if [[ $strategy != mine ]]; then
        run_once "$name" "${command[@]}"
    elif is_mine_to_run "$name" "$model" "$world"; then
        run_deadline=$mine_deadline try_run "$name" "${command[@]}" || mine_run_failed "$name" "$model" "$world" $((SECONDS - begin))
    fi
}

# json KEY FILE: the value of a key that stands on a line of its own, without quotes; nothing for null.
json() {
    sed -n "s/^ *\"$1\": *//p" "$2" |
        sed -e 's/,$//' -e 's/^"//' -e 's/"$//' -e 's/^null$//' | head -n 1
}
