# limited.sh: what judge, trainee and capstone share. Sourced.

# limited SECONDS COMMAND...: bounds processor time, memory, what it writes, and the time on the clock. timeout puts
# it into a process group of its own, and ends that.
limited() (
    seconds=$1
    shift
    ulimit -t "$seconds" 2>/dev/null || true
    ulimit -f "${blocks:-131072}" 2>/dev/null || true # of 512 bytes: 64 MiB
    # KiB: 3.5 GiB; five devices need 3.1
    [ -n "$sanitize" ] || ulimit -v "${memory:-3670016}" 2>/dev/null || true
    exec timeout -k 2 "$seconds" "$@"
)
