# stages.sh: runs stages and says at the end how each ended and how long it took. To be sourced.
stages=$(mktemp)
trap 'print_stages; rm -f "$stages" "$stages.last"' EXIT
print_stages() {
    printf '\n%-60s %8s %8s  %s\n' stage seconds 'of CPU' result
    awk '{ result = $4 == 0 ? "ok" : $4 == 77 ? "skipped" : "FAILED"; wall += $1; cpu += $2 + $3; line = $0; sub(/^[^ ]+ [^ ]+ [^ ]+ [^ ]+ /, "", line)
            printf "%-60.60s %8.0f %8.0f  %s\n", line, $1, $2 + $3, result }
        END { printf "%-60s %8.0f %8.0f\n", "all", wall, cpu }' "$stages"
}

# stage COMMAND...: its wall clock, user and system time and its status go into $stages. Returns the status.
stage() {
    local TIMEFORMAT='%R %U %S' status=0
    { time "$@" 2>&3 || status=$?; } 3>&2 2>"$stages.last"
    echo "$(cat "$stages.last") $status $*" >>"$stages"
    return $status
}
