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
            [[ -z ${paths[$1]:-} ]] || declare -g "${paths[$1]}=$(cd "$here" && realpath -m "$2")"
            shift
        else
            fail_usage "unknown option $1"
        fi
        shift
    done
}

# fail_usage WHY: ends the command, because it was not called as it should be.
fail_usage() {
    setup_say "error: $1"
    setup_say "$command_name --help shows the options"
    exit 2
}
