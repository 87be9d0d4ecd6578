# limited.sh: functions shared by judge, trainee and capstone. Sourced.

# limited SECONDS COMMAND...: limits the command's processor time, memory, written bytes and elapsed time. timeout
# starts it in its own process group and kills that group; with $keeper, also processes that have left the group.
limited() (
    seconds=$1
    shift
    ulimit -t "$seconds" 2>/dev/null || true
    ulimit -f "${blocks:-131072}" 2>/dev/null || true # of 512 bytes: 64 MiB
    # KiB: 3.5 GiB; five devices need 3.1
    [ -n "$sanitize" ] || ulimit -v "${memory:-3670016}" 2>/dev/null || true
    set -- timeout -k 2 "$seconds" "$@"
    [ -z "${keeper:-}" ] || set -- "$keeper" "$@"
    exec "$@"
)

# foreign LIST: the first file in the compiler's list of what was included (-MD -MT it) that is neither one of the headers
# nor the system's. The first that is listed is the student's own.
foreign() {
    own=$(dirname "$("$cc" -print-file-name=include)")
    sed -e '1s/^it: *//' -e 's/\\ /\a/g' -e 's/\\$//' "$1" | tr -s ' ' '\n' | tr '\a' ' ' | grep . | tail -n +2 >"$1.names"
    # One realpath for all names: a line for each, also for a file that is gone.
    tr '\n' '\0' <"$1.names" | xargs -0 -r realpath -m -- | paste -d '\n' - "$1.names" | while IFS= read -r real && IFS= read -r name; do
        case $real in "$headers"/* | /usr/include/* | /usr/lib/* | /usr/local/include/* | "$own"/*) ;; *)
            echo "$name"
            break
            ;;
        esac
    done
}
