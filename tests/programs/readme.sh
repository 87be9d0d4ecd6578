#!/bin/sh
# readme.sh BIN_DIR: README.md keeps its word: its commands run (for one epoch, without the folders that are
# the reader's own; on a GPU, or they end with 77 where none is), those of a console block print the lines below them (other long numbers are fine, and what
# "..." stands for), the programs and files that it names exist, and its options are in --help.
set -eu
bin=$1
cd "$(dirname "$0")/../.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=0 failures=0

check() { # WHAT COMMAND...
    checks=$((checks + 1))
    what=$1
    shift
    "$@" >"$work/log" 2>&1 && return 0
    failures=$((failures + 1))
    echo "FAILED: $what"
    tail -n 5 "$work/log"
}

# Every command runs in a folder in which build/bin is what was built: no path is pasted into a command.
mkdir "$work/build"
ln -s "$bin" "$work/build/bin"
sed -n 's/^    \(build\/bin\/.*\)$/\1/p' README.md | grep -v 'path/to' >"$work/commands"
in_work() { # ABSENT: the script command.sh ends with 0, or with the status ABSENT
    status=0
    (cd "$work" && sh command.sh) || status=$?
    [ "$status" = 0 ] || [ "$status" = "$1" ]
}
while read -r command; do
    absent=0 # the status that says that there is no GPU, of commands that need one
    case $command in *"--device cuda"*) absent=77 ;; esac
    echo "$command --epochs 1" >"$work/command.sh"
    check "$command" in_work $absent
done <"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 3 ] || check "the README's commands" false

# Console blocks, each in a folder of its own; a line of output is found anywhere in what its block prints,
# as often as in the README. "..." stands for anything.
PET_MASTER_PORT=$((20000 + $$ % 10000))
export PET_MASTER_PORT # for several nodes: no other test's
folder="$work" awk '/^```console$/ { file = ENVIRON["folder"] "/block" ++n; next } /^```/ { file = "" }
    file && /^\$ / { print substr($0, 3) > (file ".sh") }
    file && !/^\$ / { print > (file ".lines") }' README.md
# The numbers of ranks and of devices are short, and must be the same.
numbers() { sed -E 's/pid [0-9]+/pid N/g; s/[0-9]+\.[0-9]+|[0-9]{3,}/N/g' "$@"; }
found() { # LINE FILE: LINE, with the fewest times it must be there before it ("  2 result: ..."), is in FILE
    times=$(echo "$1" | awk '{ print $1 }')
    line=$(echo "$1" | sed -E 's/^ *[0-9]+ //')
    line=$(echo "$line" | sed 's/[][\\.*^$+?(){}|]/\\&/g; s/\\\.\\\.\\\./.*/g')
    [ "$(grep -cE -- "$line" "$2")" -ge "$times" ] || ! cat "$2"
}
for script in "$work"/block*.sh; do
    block=${script%.sh}
    mkdir "$block" "$block/build"
    ln -s "$bin" "$block/build/bin"
    { cat "$script" && echo wait; } >"$block/script"
    (cd "$block" && timeout 60 sh script >output 2>&1) || true # a job that is to fail does
    numbers "$block/output" >"$block/seen"
    numbers "$block.lines" | sort | uniq -c >"$block/wanted"
    while read -r line; do
        check "the output \"$line\"" found "$line" "$block/seen"
    done <"$block/wanted"
done
[ "$(cat "$work"/block*.lines | wc -l)" -ge 5 ] || check "the README's console blocks" false

for program in $(grep -oE 'build/bin/[a-z_]+' README.md | sort -u); do
    check "$program" test -x "$bin/${program#build/bin/}"
done
for file in $(grep -oE '`(common|dp|ddp|bench|tests)/[a-z_/]+\.(c|h|sh|md|py)' README.md | tr -d '\140' | sort -u) \
    $(grep -oE '\]\([^)#]+\)' README.md | tr -d '])('); do
    check "$file" test -e "$root/$file"
done

for program in train_single train_dp train_ddp ddprun compare_tensors; do "$bin/$program" --help; done >"$work/help"
for option in $(grep -oE -- '--[a-z][a-z-]+' README.md | sort -u); do
    case $option in
    --quick | --install | --help | --label | --preset | --all | --prefix | --hosts) continue ;; # of scripts
    --host | --bind-to | --mca | --mpi | --ntasks-per-node | --kill-on-bad-exit) continue ;; # of mpirun and srun
    esac
    check "$option" grep -q -- "  $option" "$work/help"
done

echo "readme: $checks checks, $failures failures"
[ "$failures" = 0 ]
