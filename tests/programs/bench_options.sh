#!/bin/sh
# bench_options.sh: the commands of bench take every option that their --help names, and refuse what they do not know,
# an option that lacks its value, and a value that makes no sense, each in one line. Nothing is measured.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"

# An option that is known is stepped over, with the 1 that follows if it takes a value: the error is about what is left.
for name in compare ablation allreduce paper promises peers/compare model/real model/scale; do
    command=$root/bench/$name.sh
    run "$name --help" "$command" --help
    options=$(grep -oE '^  --[a-z-]+|\[--[a-z-]+' out.txt | sed 's/.*--/--/' | grep -vxE -e '--help|--one-device')
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
for name in ablation allreduce paper promises peers/compare; do
    refuse 2 "--rounds 0: expected a number from 1" "$root/bench/$name.sh" --quick --rounds 0
done
refuse 2 '--world "x": expected numbers from 1' "$root/bench/compare.sh" --world x
refuse 2 "--link 10: expected GBIT,LATENCY_US" "$root/bench/compare.sh" --bin "$bin" --out none --link 10
refuse 2 "--link is for CPU devices" "$root/bench/compare.sh" --bin "$bin" --out none --link 10,1 --world 3
echo results >kept
mkdir "a folder"
mv kept "a folder"
refuse 2 "--out $work/a folder: exists, and not from compare.sh" "$root/bench/compare.sh" --bin "$bin" --out "a folder"
tally bench_options
