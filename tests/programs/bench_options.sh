#!/bin/sh
# bench_options.sh: the commands of bench accept every option in their --help, and refuse unknown options, missing
# values and invalid values, each with one line. Nothing is measured.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"

# Each option is followed by "1 --nope": a known option consumes itself and, if it takes a value, the 1; the error must
# be about the rest.
for name in compare ablation allreduce paper promises scaling peers/compare model/real model/scale; do
    command=$root/bench/$name.sh
    run "$name --help" "$command" --help
    options=$(grep -oE '^  --[a-z-]+|\[--[a-z-]+' out.txt | sed 's/.*--/--/' | grep -vx -e --help)
    for option in $options; do
        checks=$((checks + 1))
        ! "$command" "$option" 1 --nope >out.txt 2>err.txt </dev/null || fail "$name $option 1 --nope: status 0"
        grep -qxE -e 'error: unknown option (1|--nope)' err.txt || fail "$name $option 1 --nope: $(cat err.txt)"
    done
    [ "$(echo "$options" | wc -l)" -ge 5 ] || fail "only these options of $name: $options"
    refuse 2 "unknown option --nope" "$command" --nope
    grep -qx "bench/$name.sh --help shows the options" err.txt || fail "$name --nope: $(cat err.txt)"
    refuse 2 "unknown option x" "$command" x
    refuse 2 "--out needs a value" "$command" --out
done
for name in ablation allreduce paper promises scaling peers/compare; do
    refuse 2 "--rounds 0: expected a number from 1" "$root/bench/$name.sh" --quick --rounds 0
    refuse 2 "--rounds 99999999999999999999: expected a number from 1" "$root/bench/$name.sh" --rounds 99999999999999999999
done

# compare.sh checks its arguments before it builds, installs or creates anything: without --bin it would build here.
mkdir path
ln -s "$(command -v false)" path/cmake
unbuilt() { # 'part of the message' OPTION...
    words=$1
    shift
    refuse 2 "$words" env PATH="$work/path:$PATH" "$root/bench/compare.sh" "$@"
    [ "$(wc -l <err.txt)" = 2 ] || fail "$*: $(cat err.txt)"
}
unbuilt '--world "x": expected numbers from 1 to 64' --world x
unbuilt '--world "2 99999999999999999999": expected numbers from 1 to 64' --world "2 99999999999999999999"
unbuilt '--world "2 65": expected numbers from 1 to 64' --world "2 65"
unbuilt '--world "0 2": expected numbers from 1' --world "0 2"
unbuilt '--world "2 *": expected numbers from 1' --world "2 *"
unbuilt "--world: at least one number from 2" --world 1
unbuilt "--model mpl: expected toy, mlp, convnet, resnet20, gpt," --model "toy mpl"
unbuilt "--model toy|mlp: expected toy, mlp" --model "toy|mlp"
unbuilt "--model segnet: expected toy" --model segnet
unbuilt '--model " ": expected toy' --model " "
unbuilt "--device gpu: expected cpu, cuda, auto" --device gpu
unbuilt "--backend nccl: expected auto, shm, mpi" --backend nccl
unbuilt "--repeats 1e3: expected a number from 1 to 1000" --repeats 1e3
unbuilt "--patience -1: expected a number from 0" --patience -1
for link in 10 10, ,5 0,5 1e7,5 10,-1 10,1e7 nan,1 "10,5 " "10,5;touch x" 9gbe inf,1; do
    unbuilt "--link $link: expected GBIT,LATENCY_US like 10,5 (0.001 to 1e6 Gbit/s, 0 to 1e6 us), or one of 10gbe, pcie3x16, nvlink, paper-rdma" \
        --link "$link"
done
unbuilt "--link is for CPU devices, and for a --world that has 2" --link 10,1 --world 3
unbuilt "--link is for CPU devices" --link 10gbe --device cuda
unbuilt "--hosts is for --backend mpi" --hosts a:2
unbuilt "--bin $work/none: there is no train_single in it" --bin none
: >path/train_single
unbuilt "--bin $work/path: there is no train_single in it" --bin path
unbuilt "--bin needs a value" --bin ""
unbuilt "--out needs a value" --out ""
unbuilt "--out needs a value" --out --quick
[ ! -e out ] && [ ! -e x ] || fail "something was made: $(ls)"
if command -v mpirun >/dev/null; then
    for hosts in "a b" "a:0" "a:2,,b" "a:x" "-a" 'a;touch x' "a,"; do
        unbuilt "--hosts $hosts: expected names and ranks like A:2,B:2" --backend mpi --hosts "$hosts"
    done
fi
for name in ablation allreduce; do
    refuse 2 "--world 65: expected a number from 2 to 64" "$root/bench/$name.sh" --world 65
done
refuse 2 "--link 9gbe: expected GBIT,LATENCY_US" "$root/bench/ablation.sh" --link "10gbe 9gbe"
refuse 2 "--links 9gbe,20: expected GBIT,LATENCY_US" "$root/bench/scaling.sh" --links "10 9gbe"
refuse 2 "--only step: expected links, devices, batches" "$root/bench/scaling.sh" --only "links step"
refuse 2 "--links 9gbe: expected GBIT,LATENCY_US" "$root/bench/model/real.sh" --links "10,10 9gbe"
for name in compare ablation allreduce paper promises scaling peers/compare model/real model/scale model/published; do
    refuse 2 "--bin $work/none: there is no " "$root/bench/$name.sh" --bin none
done
# The names and bounds that the scripts extract from the sources equal the programs' own.
run "train_single --help" "$bin/train_single" --help
for word in $(sed -n 's/^ *return "\(.*|.*\)";.*/\1/p' "$root/common/nn/models.c" "$root/common/device/link.c" | tr '|' ' '); do
    checks=$((checks + 1))
    grep -qF -- "$word" out.txt || fail "train_single --help does not know $word"
done
run "64 devices" "$bin/train_dp" --devices 64 --dry-run
refuse 2 "--devices" "$bin/train_dp" --devices 65 --dry-run

# ---- folders of results ---------------------------------------------------------------------------------
mkdir "a folder"
echo results >"a folder/commands.txt"
for name in compare ablation allreduce paper promises model/scale model/published; do
    refuse 2 "--out $work/a folder: is not empty and has no manifest.txt of bench/$name.sh; nothing was touched" \
        "$root/bench/$name.sh" --bin "$bin" --out "a folder"
done

# ---- links, and help ------------------------------------------------------------------------------------
for name in compare ablation allreduce paper promises peers/compare model/real model/scale model/published regress; do
    ln -s "$root/bench/$name.sh" link
    ln -s link "link to a link"
    for called in link "link to a link"; do
        run "$name.sh --help through a link" "./$called" --help
        grep -q "^usage: bench/$name\|^ *bench/$name.sh\|^$(basename "$name").sh" out.txt || fail "$name --help: $(head -n 3 out.txt)"
    done
    rm link "link to a link"
done
run "launches.sh --help" "$root/tests/emulator/launches.sh" --help
refuse 2 "--nope: BUILD_DIR comes first" "$root/tests/emulator/launches.sh" --nope
tally bench_options
