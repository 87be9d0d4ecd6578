#!/bin/sh
# readme.sh BIN_DIR: README.md and the users' pages that it links to are true: their commands run (for one epoch,
# without the reader's own folders; on a GPU, or they end with 77 without one) and write only under build/; the commands
# of a console block print the lines below them (except long numbers and text for which "..." stands); the named
# programs, scripts and files exist, and their options are in --help. README.md's figures equal the linked report's, and
# every link of every page leads to a file and a heading.
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

# Paths relative to the top folder; the tutorials have their own tests.
pages="README.md $(grep -oE '\]\((common|dp|ddp|bench)/[^)#]+\.md' README.md | sed 's/^](//' | sort -u | tr '\n' ' ')"
[ "$(echo "$pages" | wc -w)" -ge 8 ] || check "the pages that README.md links to" false

# Each command runs in a folder whose build/bin links to the built programs: paths need no rewriting.
mkdir "$work/build"
ln -s "$bin" "$work/build/bin"
# shellcheck disable=SC2086 # page names have no spaces
sed -n 's/^    \(build\/bin\/.*\)$/\1/p' $pages | grep -v 'path/to' | sort -u >"$work/commands"
in_work() { # ABSENT: runs command.sh, which must end with 0 or with the status ABSENT
    status=0
    (cd "$work" && sh command.sh) || status=$?
    [ "$status" = 0 ] || [ "$status" = "$1" ]
}
while read -r command; do
    absent=0 # status of commands that need a GPU, without one
    case $command in *"--device cuda"*) absent=77 ;; esac
    echo "$command --epochs 1" >"$work/command.sh"
    check "$command" in_work $absent
done <"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 6 ] || check "the pages' commands" false
# left FOLDER: files other than build/ and this script's own that the commands left there
left() { [ -z "$(cd "$1" && find . ! -name . -prune ! -name build ! -name script ! -name output -print)" ] || ! ls "$1"; }

# Console blocks, each in a folder of its own; each line of output is found anywhere in the block's output, as often as
# on the page. "..." matches any text.
PET_MASTER_PORT=$((20000 + $$ % 10000))
export PET_MASTER_PORT # jobs of several nodes need a port that no other test uses
# shellcheck disable=SC2086
folder="$work" awk '/^```console$/ { file = ENVIRON["folder"] "/block" ++n; next } /^```/ { file = "" }
    file && /^\$ / { print substr($0, 3) > (file ".sh") }
    file && !/^\$ / { print > (file ".lines") }' $pages
# Numbers of ranks and devices are short and must be equal; long numbers are replaced by N.
numbers() { sed -E 's/pid [0-9]+/pid N/g; s/[0-9]+\.[0-9]+|[0-9]{3,}/N/g' "$@"; }
found() { # LINE FILE: LINE is preceded by its count ("  2 result: ..."); FILE has it at least as often
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
    (cd "$block" && timeout 60 sh script >output 2>&1) || true # some jobs must fail
    check "no files but under build/: $(head -n 1 "$script")" left "$block"
    numbers "$block/output" >"$block.seen"
    numbers "$block.lines" | sort | uniq -c >"$block.wanted"
    while read -r line; do
        check "the output \"$line\"" found "$line" "$block.seen"
    done <"$block.wanted"
done
[ "$(cat "$work"/block*.lines | wc -l)" -ge 12 ] || check "the pages' console blocks" false

# shellcheck disable=SC2086
for program in $(cat $pages | grep -oE 'build/bin/[a-z_]+' | sort -u); do
    name=${program#build/bin/}
    case $name in # a build without CUDA has no program for GPUs alone: its target must exist
    gpu_*) check "$program" grep -rqw --include=CMakeLists.txt "add_executable($name" "$root/tests" ;;
    *) check "$program" test -x "$bin/$name" ;;
    esac
done
# shellcheck disable=SC2086
for script in $(cat $pages | sed -nE 's/^    ((bench|tests)\/[a-z_\/]+\.sh).*/\1/p' | sort -u); do
    check "$script" test -x "$root/$script"
done
# shellcheck disable=SC2086
for file in $(cat $pages | grep -oE '`(common|dp|ddp|bench|tests)/[a-z_/]+\.(c|h|sh|md|py)' | tr -d '\140' | sort -u); do
    check "$file" test -e "$root/$file"
done

# leads PAGE LINK: the link leads to a file and, after a #, to a heading whose words are joined by -
leads() {
    file=$(dirname "$1")/${2%%#*}
    [ -n "${2%%#*}" ] || file=$1
    [ -e "$file" ] || return 1
    case $2 in
    *#*) sed -n 's/^##* //p' "$file" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9\n-' | grep -qx -- "${2#*#}" ;;
    esac
}
# Without the tutorials, whose links check_pages follows.
find . -name .git -prune -o -name 'build*' -prune -o -path ./tutorials -prune -o -path ./bench/results -prune -o \
    -path './bench/out*' -prune -o -name '*.md' -print >"$work/all_pages"
while read -r page; do
    for link in $(grep -oE '\]\([^) ]+\)' "$page" | tr -d '])(' | grep -v '^http'); do
        check "the link to $link in $page" leads "$page" "$link"
    done
done <"$work/all_pages"

# The figures in README.md equal those of the linked report.
same_figures() {
    cp README.md "$work" && PYTHONPATH=bench python3 -B -m report readme bench/results/two-cores "$work/README.md" && diff README.md "$work/README.md"
}
! command -v python3 >/dev/null || check "README.md's figures" same_figures

for program in train_single train_dp train_ddp ddprun compare_tensors bench_step; do "$bin/$program" --help; done >"$work/help"
# shellcheck disable=SC2086
for option in $(cat $pages | grep -oE -- '--[a-z][a-z-]+' | sort -u); do
    case $option in
    --quick | --install | --help | --build | --label | --preset | --all | --prefix) continue ;; # options of scripts
    --hosts | --measure | --mine | --minutes | --ranks | --sharded | --size) continue ;;
    --host | --bind-to | --mca | --mpi | --ntasks-per-node | --gpus-per-task | --kill-on-bad-exit) continue ;; # options of mpirun and srun
    esac
    check "$option" grep -q -- "  $option" "$work/help"
done

echo "readme: $checks checks, $failures failures"
[ "$failures" = 0 ]
