#!/bin/sh
# simulated.sh BIN: SimGrid simulates every message of a step; their number and time equal the formulas of bench/model.
# Ends with 77 in a build without SimGrid (bench/setup.sh's group `scale` installs it).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/checks.sh"
. "$here/easy_profile.sh"

scale --devices 2 --simulate >out 2>err.txt || {
    sed 's/^/SKIPPED: /' err.txt
    grep -q 'no SimGrid' err.txt && exit 77
}
for how in "--algorithm ring" "--algorithm tree" "--algorithm hierarchical --node-size 4" "--straggler 1.7" "--call-us 300"; do
    # shellcheck disable=SC2086 # options are words
    scale --gbit 8 --devices 2,16 --simulate $how >out
    for strategy in dp ddp fsdp; do
        for devices in 2 16; do
            # Device 0 sends to all others, one after the other, while a slow one computes.
            [ "$devices $strategy $how" != "16 dp --straggler 1.7" ] || continue
            ratio=$(column model_over_simulated $devices $strategy)
            holds "SimGrid agrees, $devices devices, $strategy $how" "${ratio:-0} > 0.99 && ${ratio:-0} < 1.01"
        done
    done
done
scale --devices 1 --simulate --call-us 300 --straggler 1.7 >out
for strategy in dp ddp fsdp; do
    holds "one device calls no other, $strategy" "(d = $(column model_over_simulated 1 $strategy) - 1) * d < 1e-6"
done
sed 's/"ready": 1}/"ready": 1, "unit": 0}/' profile.json >root.json
"$bin/bench_scale" --profile root.json --rows 10 --gbit 8 --devices 8 --no-overlap --simulate >out
holds "SimGrid agrees, with a root and without overlap" "(d = $(column model_over_simulated 8 fsdp) - 1) * d < 1e-4"
refuse 2 'do not fill nodes of 3' "$bin/bench_scale" --profile profile.json --devices 4 --node-size 3 --simulate

# A simulation that cannot write its platform's file fails.
(ulimit -f 0 && "$bin/bench_scale" --profile profile.json --devices 2 --simulate || echo "status $?") 2>&1 | cat >out
holds "it is an error" "$(grep -c 'error: the simulation of 2 devices ended with status [1-9]' out) + $(grep -c '^status 1$' out) == 2"

# Simulations that would take minutes are reported as not simulated.
scale --devices 4096 --simulate >out
holds "no ring of 4096" "$(grep -c '^4096,ddp,.*,not simulated,not simulated$' out) == 1"
holds "a line says so" "$(grep -c '^# not simulated: steps of more than 5000000 messages' out) == 1"
holds "DP's step is still simulated" "$(column model_over_simulated 4096 dp) > 0.99"
tally simulated
