# options.sh: reads the options of bench's commands. Sourced by them after runs.sh; uses here, the folder in which the
# command was called.
# The comment at the top of a command, and common_options, are printed by --help and define its options, one per line or
# bracket:
#   --quick      a flag: the variable quick becomes 1
#   --world N    an option with a value, for the variable world
#   --out DIR    with DIR or FILE: the variable gets the whole path
# Before the call, the variables have the defaults. asked becomes the command as typed.

# The options of all commands; $out is the usual folder.
common_options() {
    cat <<END

options of every command of bench:
  --out DIR          where the results go (default: $out)
  --resume           go on with a call that was interrupted (the same options)
  --install          install missing packages with sudo (root does so unasked)
  --bin DIR          use the programs in DIR, build nothing
  --help             this text
END
}

# Prints the comment at the top of the command.
described() {
    sed '1d; /^[^#]/,$d; s/^# \{0,1\}//' "$script" && common_options
}

read_options() { # COMMAND ARGUMENT...
    local script option word
    local -A takes=()
    script=$(cd "$here" && readlink -f "$0")
    while read -r option word; do takes[$option]=${word:-nothing}; done < <(
        described | grep -oE '(^  |\[)--[a-z-]+( [^] ]+)?' | sed 's/^[^-]*//')
    command_name=$1 asked=$(quoted "$@")
    shift
    while [[ $# -gt 0 ]]; do
        [[ $1 != --help && $1 != -h ]] || { described || exit 1; exit 0; }
        case ${1:+${takes[$1]:-}} in
        "") fail_usage "unknown option $1" ;;
        nothing) set_option "$1" 1 ;;
        *)
            [[ $# -ge 2 ]] || fail_usage "$1 needs a value"
            case ${takes[$1]} in DIR | FILE) read_path "$1" "$2" ;; *) set_option "$1" "$2" ;; esac
            shift
            ;;
        esac
        shift
    done
}

set_option() { # OPTION VALUE
    local name=${1#--}
    declare -g "${name//-/_}=$2"
    [[ $1 != --rounds ]] || need_number "$1" "$2" 1 1000
    [[ $1 != --patience ]] || need_number "$1" "$2" 0 999999
}

read_path() { # OPTION PATH
    local path
    [[ -n $2 && -z ${takes[$2]:-} ]] || fail_usage "$1 needs a value"
    path=$(cd "$here" && realpath -m -- "$2" 2>/dev/null) || fail_usage "$1 ${2:0:80}: is no path"
    set_option "$1" "$path"
}

# The following functions end the command, before anything is built, unless the value of the option OPTION is valid.

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

# need_link OPTION VALUE: an emulated link in the programs' syntax (common/device/link.c).
need_link() {
    local names
    names=$(listed_in common/device/link.c)
    [[ "|$names|" == *"|$2|"* ]] || awk -v text="$2" 'BEGIN {
        real = "[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?"
        split(text, part, ",")
        exit !(text ~ "^" real "," real "$" && part[1] >= 1e-3 && part[1] <= 1e6 && part[2] <= 1e6)
    }' || fail_usage "$1 ${2:0:80}: expected GBIT,LATENCY_US like 10,5 (0.001 to 1e6 Gbit/s, 0 to 1e6 us), or one of ${names//|/, }"
}

# need_programs NAME...: these programs must be in --bin, if it was given.
need_programs() {
    local name
    [[ -n $bin ]] || return 0
    for name; do
        [[ -f $bin/$name && -x $bin/$name ]] || fail_usage "--bin $bin: there is no $name in it"
    done
}

# listed_in FILE: prints the names "a|b|c" that a source file defines for the programs' options.
listed_in() {
    sed -n 's/^ *return "\([a-z0-9|-]*|[a-z0-9|-]*\)";.*/\1/p' "$1" | head -n 1
}

model_names() {
    listed_in common/nn/models.c
}

# Prints the maximum number of devices of DataParallel.
most_devices() {
    sed -n 's/.*DP_MAX_DEVICES = \([0-9]*\).*/\1/p' dp/data_parallel.h
}

# fail_usage WHY: ends the command with a usage error.
fail_usage() {
    setup_say "error: $1"
    setup_say "$command_name --help shows the options"
    exit 2
}
