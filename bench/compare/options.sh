# options.sh: how bench's commands read their options. Sourced by them after runs.sh; uses here, the folder in which
# the command was called, and usage, the function that prints what --help shows.
#
# A command says which options it takes and which variable each sets. The variables hold the defaults before:
#
#   declare -A flags=([--quick]=quick)                    # --quick sets quick to 1
#   declare -A values=([--world]=worlds)                  # --world "1 2" sets worlds to "1 2"
#   declare -A paths=([--out]=out)                        # --out DIR sets out to the whole path of DIR
#   read_options bench/some.sh "$@"                       # and sets asked, the command as it was typed
#
# Reading stops at last_option if the command sets that: rest holds this option and all that follows it.

read_options() { # COMMAND ARGUMENT...
    command_name=$1 rest=()
    asked=$(quoted "$@")
    shift
    while [[ $# -gt 0 ]]; do
        [[ $1 != --help && $1 != -h ]] || { usage || exit 1; exit 0; }
        [[ $1 == --* ]] || fail_usage "unknown option $1"
        [[ $1 != "${last_option:-}" ]] || { rest=("$@") && return; }
        if [[ -n ${flags[$1]:-} ]]; then
            declare -g "${flags[$1]}=1"
        elif [[ -n ${values[$1]:-}${paths[$1]:-} ]]; then
            [[ $# -ge 2 ]] || fail_usage "$1 needs a value"
            [[ -z ${values[$1]:-} ]] || declare -g "${values[$1]}=$2"
            [[ -z ${paths[$1]:-} ]] || read_path "$1" "$2"
            [[ $1 != --rounds ]] || need_number "$1" "$2" 1 1000
            [[ $1 != --patience ]] || need_number "$1" "$2" 0 999999
            shift
        else
            fail_usage "unknown option $1"
        fi
        shift
    done
}

read_path() { # OPTION PATH
    local path
    [[ -n $2 && -z ${flags[$2]:-}${values[$2]:-}${paths[$2]:-} ]] || fail_usage "$1 needs a value"
    path=$(cd "$here" && realpath -m -- "$2" 2>/dev/null) || fail_usage "$1 ${2:0:80}: is no path"
    declare -g "${paths[$1]}=$path"
}

# What follows ends the command unless the value of the option OPTION is what it should be; before anything is built.

need_number() { # OPTION VALUE FROM TO
    [[ $2 =~ ^(0|[1-9][0-9]{0,8})$ && $2 -ge $3 && $2 -le $4 ]] ||
        fail_usage "$1 ${2:0:80}: expected a number from $3 to $4"
}

need_numbers() { # OPTION VALUES FROM TO
    local one count=0
    for one in $2; do
        [[ $one =~ ^(0|[1-9][0-9]{0,8})$ && $one -ge $3 && $one -le $4 ]] || break
        count=$((count + 1))
    done
    [[ $count -gt 0 && $count == $(wc -w <<<"$2") ]] || fail_usage "$1 \"${2:0:80}\": expected numbers from $3 to $4"
}

need_word() { # OPTION VALUE "A|B|C"
    [[ $2 != *"|"* && -n $2 && "|$3|" == *"|$2|"* ]] || fail_usage "$1 ${2:0:80}: expected ${3//|/, }"
}

need_words() { # OPTION VALUES "A|B|C"
    local one
    [[ -n ${2// /} ]] || fail_usage "$1 \"${2:0:80}\": expected ${3//|/, }"
    for one in $2; do need_word "$1" "$one" "$3"; done
}

# need_link OPTION VALUE: an emulated link as the programs take it (common/device/link.c).
need_link() {
    local names
    names=$(listed_in common/device/link.c)
    [[ "|$names|" == *"|$2|"* ]] || awk -v text="$2" 'BEGIN {
        real = "[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?"
        split(text, part, ",")
        exit !(text ~ "^" real "," real "$" && part[1] >= 1e-3 && part[1] <= 1e6 && part[2] <= 1e6)
    }' || fail_usage "$1 ${2:0:80}: expected GBIT,LATENCY_US like 10,5 (0.001 to 1e6 Gbit/s, 0 to 1e6 us), or one of ${names//|/, }"
}

# need_programs NAME...: they are in --bin, if that was given.
need_programs() {
    local name
    [[ -n $bin ]] || return 0
    for name; do
        [[ -f $bin/$name && -x $bin/$name ]] || fail_usage "--bin $bin: there is no $name in it"
    done
}

# listed_in FILE: the names "a|b|c" that a source file gives to the programs' own options.
listed_in() {
    sed -n 's/^ *return "\([a-z0-9|-]*|[a-z0-9|-]*\)";.*/\1/p' "$1" | head -n 1
}

model_names() {
    listed_in common/nn/models.c
}

# The most devices that one process of DataParallel takes.
most_devices() {
    sed -n 's/.*DP_MAX_DEVICES = \([0-9]*\).*/\1/p' dp/data_parallel.h
}

# fail_usage WHY: ends the command, because it was not called as it should be.
fail_usage() {
    setup_say "error: $1"
    setup_say "$command_name --help shows the options"
    exit 2
}
