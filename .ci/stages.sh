# stages.sh: runs stages and says at the end how long each took. To be sourced.
stages=$(mktemp)
trap 'print_stages; rm -f "$stages"' EXIT
print_stages() {
    printf '\n%-42s %8s %8s\n' stage seconds 'of CPU'
    awk '{ printf "%-42s %8.0f %8.0f\n", $4 " " $5 " " $6 " " $7, $1, $2 + $3; wall += $1; cpu += $2 + $3 }
        END { printf "%-42s %8.0f %8.0f\n", "all", wall, cpu }' "$stages"
}

# stage COMMAND...: its wall clock, user and system time go into $stages, also if it fails.
stage() {
    local TIMEFORMAT="%R %U %S $*" status=0
    { time "$@" 2>&3 || status=$?; } 3>&2 2>>"$stages"
    return $status
}
