#!/bin/sh
# weak_memory.sh: explores the orders of shared memory with the model checker Relacy (README.md).
#
#   weak_memory.sh [BIN]              all scenarios, of this tree's sources (BIN: CTest's, not used)
#   weak_memory.sh --tree DIR [NAME]  the sources of another tree; one scenario
#
# Exit status: 0 no execution fails; 1 one does, and its schedule is printed; 77 Relacy is not installed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tree=$here/../..
scenario=
if [ "${1:-}" = --tree ]; then
    tree=$2
    scenario=${3:-}
fi
cxx=${CXX:-g++}
command -v "$cxx" >/dev/null || { echo "no $cxx: install g++" && exit 77; }
printf '#if !__has_include(<relacy/relacy.hpp>)\n#error\n#endif\n' | "$cxx" -E -x c++ - >/dev/null 2>&1 ||
    { echo "Relacy is not installed: apt-get install relacy-dev" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# cut_out FILE FUNCTION...: prints these functions of FILE, unchanged, in this order.
cut_out() {
    file=$1
    shift
    for name in "$@"; do
        awk -v name="$name" '
            !inside && $0 ~ "^[a-zA-Z].*[ *]" name "\\(.*[{,]$" { inside = 1; found++ }
            inside { print }
            inside && /^}/ { inside = 0 }
            END { exit found != 1 }' "$tree/$file" || { echo "error: $file has no function $name" >&2 && exit 1; }
    done >"$work/$(basename "$file" .c).cut"
}

cut_out ddp/group/shm/shm_wait.c slot reached is_missing shm_check_abort shm_abort await shm_await shm_barrier \
    shm_enter shm_fingerprint shm_begin shm_finish
cut_out ddp/group/shm/shm_moves.c min_size room_in shm_staged shm_is_eager shm_eager shm_direct \
    chunk_end shm_send shm_receive
cut_out ddp/group/process_group.c pg_copy_error break_sound pg_break
cut_out ddp/group/work.c queues next_work do_work communication_thread pg_stop_thread wait_over take_work refuse \
    enqueue take_back
mkdir -p "$work/include/common/base"
touch "$work/include/stdatomic.h" "$work/include/common/base/clock.h" # empty: relacy_c.h defines their contents
# -fpermissive: C converts a void pointer without a cast. -Og: the least time for compilation and exploration together.
"$cxx" -std=gnu++17 -Og -w -fpermissive -I "$work/include" -I "$work" -I "$here" -I "$tree" \
    "$here/model.cpp" -o "$work/weak_memory"
cd "$work"
status=0
./weak_memory ${scenario:+"$scenario"} || status=$?
[ "$status" = 0 ] || awk '/^execution/, /^thread/' schedule | sed '1,/BEFORE END/d; /^thread/d'
exit "$status"
