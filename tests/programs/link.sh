#!/bin/sh
# link.sh BIN_DIR: --link in the programs: it changes no bit, every step takes at least the model's time (computed here
# from the bytes, independent of the tested code), and each number is marked as emulated.
. "$(dirname "$0")/checks.sh"
common="--steps 4 --no-eval --hidden 256,64 --log-every 1 --schedule constant"
link=0.5,100 # 0.5 Gbit/s: 16 ns per byte; latency 100 us
PATH=$bin:$PATH # commands are stored in variables, and the folder's name may have spaces
dp="train_dp --devices 2"
ddp="ddprun --nproc-per-node 2 train_ddp --sampler blocked"

# at_least MS COLUMN,COLUMN FOLDER: in every row of steps.csv these columns add up to at least MS.
at_least() {
    checks=$((checks + 1))
    awk -F, -v least="$1" -v columns="$2" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; n = split(columns, name, ","); next }
        { sum = 0; for (i = 1; i <= n; i++) sum += $at[name[i]]; if (sum >= least) good++ }
        END { exit good != 4 }' "$3/steps.csv" || fail "$3: $2 are below $1 ms: $(cat "$3/steps.csv")"
}

run "dp" $dp $common --save dp
checks=$((checks + 1))
! grep -q emulated out.txt err.txt || fail "without --link: $(cat out.txt err.txt)"
run "dp, link" $dp $common --save dp-link --link $link --out dp.d --profile --trace dp.json
same dp dp-link
for pattern in '^times are over an emulated link of 0.5 Gbit/s and 100 us' 'share  (over an emulated link)'; do
    checks=$((checks + 1))
    grep -q "$pattern" err.txt || fail "dp: no \"$pattern\" in $(cat err.txt)"
done
checks=$((checks + 1))
[ "$(grep -c '^step=.* link=emulated$' out.txt)" = 4 ] || fail "dp, progress: $(cat out.txt)"
run "ddp, link" $ddp $common --save ddp-link --link $link --out ddp.d
same dp ddp-link
# Parameters: 64*256 + 256 + 256*64 + 64 + 64*10 + 10. DP: weights to and gradients from one device, each at least one
# transfer. DDP: a ring of two ranks sends each byte once, in at least two rounds.
at_least "$(awk 'BEGIN { print 33738 * 4 * 16e-6 + 0.1 }')" replicate_ms dp.d
at_least "$(awk 'BEGIN { print 33738 * 4 * 16e-6 + 0.1 }')" reduce_ms dp.d
at_least "$(awk 'BEGIN { print 33738 * 4 * 16e-6 + 0.2 }')" communication_ms ddp.d
for folder in dp.d ddp.d; do
    checks=$((checks + 2))
    head -n 1 $folder/steps.csv | grep -q ',link$' || fail "$folder: $(head -n 1 $folder/steps.csv)"
    [ "$(grep -c ',emulated$' $folder/steps.csv)" = 4 ] || fail "$folder: $(cat $folder/steps.csv)"
    for file in config summary; do
        checks=$((checks + 1))
        grep -q '"link": "an emulated link of 0.5 Gbit/s and 100 us"' $folder/$file.json ||
            fail "$folder/$file.json: $(cat $folder/$file.json)"
    done
done
checks=$((checks + 1))
grep -q 'emulated link' dp.json || fail "the trace does not say that the link is emulated"

# With small buckets communication overlaps backward, and nothing else changes.
run "ddp, many buckets" $ddp $common --save buckets --link 10gbe --bucket-cap-mb 0.1
same dp buckets
run "ddp, no overlap" $ddp $common --no-overlap --link nvlink --save late
same dp late

refuse 2 '--link is for train_dp and train_ddp' train_single $common --link $link
for value in '' 10 10, ,5 0,5 10,-1 10,5x ethernet; do
    refuse 2 'expected GBIT,LATENCY_US' $dp $common --link "$value"
done
tally link
