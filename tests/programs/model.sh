#!/bin/sh
# model.sh BIN PART: the model of a step (bench/model) against formulas, evaluated here for a profile with simple numbers
# (formulas); its buckets and units equal the trainers' (buckets); bench_fit finds the numbers that generated its points
# (fit); a measured profile is valid, and an invalid one is refused by name (file).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/checks.sh"
. "$here/easy_profile.sh"

formulas_part() {
    # 8 Gbit/s are 1e9 bytes per second: a MiB takes 1.048576 ms; the latency is 0.1 ms.
    scale --gbit 8 --latency-us 100 --devices 1,4 >out
    checks=$((checks + 1))
    [ "$(head -n 1 out)" = "# easy: 10 rows a device, 8 Gbit/s, 100 us, bucket cap 1 MiB" ] || fail "$(head -n 1 out)"
    near step 1 dp '3 + 0.1 + 6 + 1'
    near step 1 ddp '3 + 0.1 + 6 + 1'
    near rows_per_s 4 ddp '4 * 10 / (3 + 0.1 + 6 + 1 + 1.5 + 4 * 6 * (0.1 + 1.048576 / 4) - 6) * 1000'
    near efficiency 4 ddp '(3 + 0.1 + 6 + 1) / (3 + 0.1 + 6 + 1 + 1.5 + 4 * 6 * (0.1 + 1.048576 / 4) - 6)'
    near replicate 4 dp '3 * (4 * 0.1 + 4 * 1.048576)'
    near scatter 4 dp '3 * (0.1 + 0.01)'
    near gather 4 dp '3 * 2 * (0.1 + 0.001)'
    near loss 4 dp '0.4'
    # A ring of four: 6 rounds of a quarter bucket. Its 2.17 ms exceed the 1.5 ms between two buckets.
    near exposed 4 ddp '1.5 + 4 * 6 * (0.1 + 1.048576 / 4) - 6'
    near step 4 ddp '3 + 0.1 + 6 + 1 + 1.5 + 4 * 6 * (0.1 + 1.048576 / 4) - 6'
    # A collective's own cost is added once to each collective, with any algorithm, and not on one device.
    scale --gbit 8 --latency-us 100 --call-us 200 --devices 1,4 >out
    near exposed 4 ddp '1.5 + 4 * (0.2 + 6 * (0.1 + 1.048576 / 4)) - 6'
    near step 1 ddp '3 + 0.1 + 6 + 1'
    near reduce 4 dp '3 * (4 * 0.1 + 4 * 1.048576)'
    scale --gbit 8 --latency-us 100 --call-us 200 --devices 8 --algorithm tree >out
    near exposed 8 ddp '1.5 + 4 * (0.2 + 6 * (0.1 + 1.048576)) - 6'
    scale --gbit 8 --latency-us 100 --devices 4 --no-overlap >out
    near exposed 4 ddp '4 * 6 * (0.1 + 1.048576 / 4)'
    # Hidden behind backward except for the last bucket.
    scale --gbit 80 --latency-us 0 --devices 4 >out
    near exposed 4 ddp '6 * 0.1048576 / 4'
    scale --gbit 8 --latency-us 100 --devices 8 --algorithm tree >out
    near exposed 8 ddp '1.5 + 4 * 6 * (0.1 + 1.048576) - 6'
    scale --gbit 8 --latency-us 100 --inside-gbit 80 --inside-latency-us 10 --devices 8 --algorithm hierarchical --node-size 4 >out
    near exposed 8 ddp '6 * (0.01 + 0.1048576 / 4) + 2 * (0.1 + 1.048576 / 4 / 2)'
    scale --gbit 8 --latency-us 0 --devices 4 --straggler 2 >out
    near exposed 4 ddp '6 * 1.048576 / 4'
    for strategy in ddp fsdp; do
        near forward 4 $strategy 6
        near loss 4 $strategy 0.2
        near backward 4 $strategy 12
    done
    near optimizer 4 ddp 2
    near optimizer 4 fsdp '2 / 4'
    # Buckets are ready at equal intervals; each begins when the one before has ended.
    scale --gbit 8 --latency-us 100 --devices 4 --buckets | sed '1,/^bucket,/d' >out
    holds "when buckets begin and end" "$(awk -F, -v ring="$(awk 'BEGIN { printf "%.9g", 6 * (0.1 + 1.048576 / 4) }')" '
        function off(a, b) { return (a / b - 1) ^ 2 > 1e-14 }
        /^[0-9]/ { n += $1 == NR - 1 && !off($4, 1.5 * NR) && !off($5, 1.5 + (NR - 1) * ring) && !off($6, 1.5 + NR * ring) } END { print n }' out) == 4"
    scale --bucket-cap-mb 2 --devices 2 --buckets >out
    holds "a cap of 2 MiB makes two buckets" "$(grep -c '^[01],2,2097152,' out) == 2"
    # Fully sharded: a gather before each of four forwards and backwards and a reduction after each backward, each half of a
    # ring. The first gather and the last reduction overlap nothing; backward's first gather overlaps the loss, 0.1 ms; each
    # other transfer is exposed beyond the computation that it overlaps: 0.75 ms in forward; 1.5 ms in backward, with two
    # transfers.
    half='3 * (0.1 + 1.048576 / 4)'
    scale --gbit 8 --latency-us 100 --devices 1,4 >out
    near step 1 fsdp '3 + 0.1 + 6 + 1'
    near exposed 4 fsdp "3 * $half - 0.1 + 3 * ($half - 0.75) + 2 * (2 * $half - 1.5)"
    near optimizer 4 fsdp '1 / 4'
    scale --gbit 8 --latency-us 100 --devices 4 --no-overlap --algorithm tree --call-us 50 >out
    near exposed 4 fsdp "12 * (0.05 + $half)"
    scale --gbit 8 --latency-us 100 --devices 4 --shard-us 953.67431640625 --straggler 100 >out
    near exposed 4 fsdp "2 * $half + 12 * 1"
    # The root's tensors are gathered and reduced once, tensors of one unit together.
    sed 's/0.25}/0.25, "unit": 0}/; s/0.5}/0.5, "unit": 1}/; s/0.75}/0.75, "unit": 1}/; s/"ready": 1}/"ready": 1, "unit": 0}/' profile.json >units.json
    "$bin/bench_scale" --profile units.json --rows 10 --gbit 8 --latency-us 100 --devices 4 >out
    near exposed 4 fsdp '2 * 3 * (0.1 + 2.097152 / 4) + (3 * (0.1 + 2.097152 / 4) - 0.75) + (3 * (0.1 + 2.097152 / 4) - 1.5) * 2 - 0.1'

    # At the break-even bandwidth, W devices train as many rows per second as one.
    scale --devices 4 --latency-us 0 >out
    gbit=$(sed -n 's/^# dp on 4 .* from \([0-9.e+-]*\) Gbit.*/\1/p' out)
    scale --devices 4 --latency-us 0 --gbit "$gbit" >out
    holds "efficiency at DP's break-even" "$(column efficiency 4 dp) > 0.2499 && $(column efficiency 4 dp) < 0.2501"

    # Transfers without bytes pay off on any network; with a long latency they pay off on none.
    sed 's/bytes": [0-9]*/bytes": 0/g' profile.json >light.json
    "$bin/bench_scale" --profile light.json --rows 10 --devices 4 --latency-us 0 >out
    holds "any network" "$(grep -c '^# [dfs]*dp on 4 devices is faster than one device on any network$' out) == 3"
    scale --devices 4 --latency-us 1e6 >out
    holds "every network" "$(grep -c '^# [dfs]*dp on 4 devices is slower than one device on every network$' out) == 3"

    # The computing core also adds: 1 ms for each of four buckets of 2 ms of backward, exposed only for the last one. If the
    # network is slower than the core, the network determines the time.
    scale --gbit 1e6 --latency-us 0 --devices 2 --sum-us 953.67431640625 >out
    near exposed 2 ddp 4
    scale --gbit 8 --latency-us 0 --devices 2 --sum-us 10 >out
    near exposed 2 ddp '1.048576 + 3 * 0.01048576'
    scale --gbit 1e6 --latency-us 0 --devices 3 --copy-us 953.67431640625 >out
    near replicate 3 dp 8
    near reduce 3 dp 8
    refuse 2 'knows neither' "$bin/bench_scale" --profile profile.json --simulate --sum-us 1
}

buckets_part() {
    # The buckets are the Reducer's (ddp/buckets.h): those that train_ddp reduces in its last step, with their bytes. By
    # default there are two: the first is full at 1 MiB, the second holds the other 1.6 MB.
    run "bench_profile" "$bin/bench_profile" --hidden 600,600,600 --rows 8 --rounds 2 --save network.json
    for cap in 0 0.1 0.3 1 -1; do
        run "train_ddp --bucket-cap-mb $cap" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --device cpu --model mlp \
            --hidden 600,600,600 --global-batch 16 --steps 3 --no-eval --bucket-cap-mb $cap --trace trace.json
        "$bin/bench_scale" --profile network.json --devices 2 --bucket-cap-mb $cap --buckets |
            awk -F, '/^bucket,/ { on = 1; next } on && /^[0-9]/ { print $1, $2, $3 }' >planned
        # Transferred bytes: each gradient is padded to a cache line.
        grep -o '"all_reduce", "pid": 0.*"number": [0-9]*, "bucket": [0-9]*, "bytes": [0-9]*' trace.json |
            sed 's/.*"number": \([0-9]*\), "bucket": \([0-9]*\), "bytes": \([0-9]*\)/\1 \2 \3/' | sort -n |
            awk '$2 == 0 { n = 0 } { line[n++] = $2 " " $3 } END { for (i = 0; i < n; i++) print line[i] }' >reduced
        checks=$((checks + 1))
        awk 'FNR == NR { bytes[n++] = $3; tensors[n - 1] = $2; next } { m++; if ($2 < bytes[$1] || $2 > bytes[$1] + 64 * tensors[$1]) exit 1 }
            END { exit n != m }' planned reduced || fail "cap $cap: planned $(paste -sd, planned); reduced $(paste -sd, reduced)"
    done

    # The units are train_fsdp's: blocks, and the root. Each of two ranks gathers half of a unit's bytes.
    run "bench_profile" "$bin/bench_profile" --model resnet20 --rows 2 --rounds 1 --save resnet20.json
    run "train_fsdp" "$bin/ddprun" --nproc-per-node 2 "$bin/train_fsdp" --device cpu --model resnet20 --data synthetic:3x32x32:10@480 \
        --global-batch 4 --steps 1 --no-eval --trace trace.json
    sed -n 's/.*"bytes": \([0-9]*\), .*"unit": \([0-9]*\).*/\2 \1/p' resnet20.json | awk '{ sum[$1] += $2 } END { for (unit in sum) print sum[unit] }' | sort -n >planned
    grep -o '"all_gather", "pid": 0.*"bucket": [0-9]*, "bytes": [0-9]*' trace.json | sed 's/.*"bucket": \([0-9]*\), "bytes": \([0-9]*\)/\1 \2/' |
        sort -u | awk '{ print 2 * $2 }' | sort -n >gathered
    checks=$((checks + 1))
    cmp -s planned gathered && [ "$(wc -l <planned)" = 10 ] || fail "units: planned $(paste -sd, planned); gathered $(paste -sd, gathered)"
}

fit_part() {
    # fitted FILE: the rows of bench_fit are the points of the file, and its largest error is the rows' largest error.
    fitted() {
        checks=$((checks + 1))
        awk -F, 'FNR == NR { wanted[++n] = sprintf("%d %.6g %.6g", $1, $2, NF > 2 ? $3 : -1); next }
            FNR == 1 { split($0, word, "largest_error="); split(word[2], said, " "); next }
            FNR == 2 { if ($0 != "devices,seconds,bucket_mb,fitted,held_out") print "header " $0; next }
            {
                if ($1 " " $2 " " $3 != wanted[++m]) print "point " m ": " $0 ", not " wanted[m]
                off = $4 / $2 - 1
                off = off < 0 ? -off : off
                if (off > most) most = off
                if ($5 <= 0) print "point " m " is not held out"
            }
            END {
                if (m != n) print m " points, not " n
                if ((said[1] - most) ^ 2 > 1e-4 ^ 2) print "largest_error=" said[1] ", not " most
            }' "$1" out.txt >wrong.txt
        [ ! -s wrong.txt ] || fail "bench_fit: $(cat wrong.txt out.txt)"
    }

    # A fit recovers the three numbers that generated the points, and reports a number that is not determined.
    "$bin/bench_scale" --profile profile.json --rows 1 --devices 2,4,8,16,64 --gbit 5 --inside-gbit 5 --latency-us 40 \
        --inside-latency-us 40 --algorithm hierarchical --node-size 8 --straggler 1.25 --bucket-cap-mb -1 |
        awk -F, '$2 == "ddp" { printf "%d,%.9g\n", $1, $12 / 1000 }' >points.csv
    run "bench_fit" "$bin/bench_fit" --profile profile.json --points points.csv
    fitted points.csv
    head -n 1 out.txt | tr ' ' '\n' >numbers
    holds "the width" "(d = $(sed -n 's/^gbit=//p' numbers) / 5 - 1) * d < 1e-4"
    holds "the latency" "(d = $(sed -n 's/^latency_us=//p' numbers) / 40 - 1) * d < 1e-4"
    holds "the slow-down" "(d = $(sed -n 's/^slowdown=//p' numbers) / 1.25 - 1) * d < 1e-4"
    sed 's/,.*/,0.01/' points.csv >flat.csv
    run "bench_fit of equal steps" "$bin/bench_fit" --profile profile.json --points flat.csv
    fitted flat.csv
    holds "a number at its limit" "$(grep -c 'at_its_limit=' out.txt) == 1"
    # Steps that no numbers make so short, or so long: each number is at the same end of its range.
    bounds() { # SECONDS COST NUMBERS
        sed "s/,.*/,$1/" points.csv >far.csv
        run "steps of $1 s" "$bin/bench_fit" --profile profile.json --points far.csv --cost "$2"
        fitted far.csv
        checks=$((checks + 1))
        [ "$(sed -n '1s/ largest_error=[0-9.]*//p' out.txt)" = "$3" ] || fail "steps of $1 s: $(cat out.txt), not $3"
    }
    at=at_its_limit
    bounds 0.0001 message "gbit=400 latency_us=1 call_us=0 slowdown=0.25 $at=latency_us $at=slowdown $at=gbit"
    bounds 0.0001 call "gbit=400 latency_us=0 call_us=1 slowdown=0.25 $at=call_us $at=slowdown $at=gbit"
    bounds 30 message "gbit=0.1 latency_us=5000 call_us=0 slowdown=2 $at=latency_us $at=slowdown $at=gbit"
    bounds 30 call "gbit=0.1 latency_us=0 call_us=2e+04 slowdown=2 $at=call_us $at=slowdown $at=gbit"
    # The same with a cost per call, and enough buckets to determine it.
    for mib in 0 2; do
        "$bin/bench_scale" --profile profile.json --rows 1 --devices 2,8,64 --gbit 5 --inside-gbit 5 --latency-us 0 \
            --inside-latency-us 0 --call-us 300 --algorithm hierarchical --node-size 8 --straggler 0.8 --bucket-cap-mb $mib |
            awk -F, -v mib=$mib '$2 == "ddp" { printf "%d,%.9g,%d\n", $1, $12 / 1000, mib }'
    done >points.csv
    run "bench_fit of calls" "$bin/bench_fit" --profile profile.json --points points.csv --cost call
    fitted points.csv
    head -n 1 out.txt | tr ' ' '\n' >numbers
    holds "the cost of a call" "(d = $(sed -n 's/^call_us=//p' numbers) / 300 - 1) * d < 1e-4"
    holds "no latency" "$(sed -n 's/^latency_us=//p' numbers) == 0"
    holds "a slow-down below 1" "(d = $(sed -n 's/^slowdown=//p' numbers) / 0.8 - 1) * d < 1e-4"
    holds "held out, a point is found again" "$(sed 1,2d out.txt | awk -F, '{ off = $5 / $2 - 1; n += off * off < 1e-4 } END { print n }') >= 5"
    # Both costs, from points with noise: one cost has a larger error than the others and than the fit.
    awk -F, '{ printf "%s,%.9g,%s\n", $1, $2 * (1 + 0.01 * (NR % 3)), $3 }' points.csv >noisy.csv
    run "bench_fit of both" "$bin/bench_fit" --profile profile.json --points noisy.csv --cost both
    fitted noisy.csv
    holds "an error of noise" "(e = $(sed -n '1s/.*largest_error=\([0-9.]*\).*/\1/p' out.txt)) > 0.001 && e < 0.011"
    # Too few points for the numbers to be fitted, and just enough.
    for cost in message call both; do
        least=$([ $cost = both ] && echo 5 || echo 4)
        head -n "$least" noisy.csv >few.csv
        run "$least points for $cost" "$bin/bench_fit" --profile profile.json --points few.csv --cost $cost
        head -n $((least - 1)) noisy.csv >few.csv
        refuse 2 "few.csv: expected more than $((least - 1)) points" "$bin/bench_fit" --profile profile.json --points few.csv --cost $cost
    done
    refuse 2 'nowhere.csv: No such file' "$bin/bench_fit" --profile profile.json --points nowhere.csv
    refuse 2 'are needed' "$bin/bench_fit" --profile profile.json
    refuse 2 'are needed' "$bin/bench_fit" --points points.csv
    printf '4096,0.1,1000000\n1,0.1,-1\n2,0.1\n3,0.05,0\n' >edge.csv
    run "points at the edges" "$bin/bench_fit" --profile profile.json --points edge.csv
    fitted edge.csv
    for wrong in '2;0.1' '2,0.1,x' '0,0.1' '2,0' '2,0.1,-2' '2,0.1,1000001' '4097,0.1' '2,0.1,3,4' "$(yes 2,0.1 | head -n 65)"; do
        echo "$wrong" >points.csv
        refuse 2 'expected at most 64 lines like' "$bin/bench_fit" --profile profile.json --points points.csv
    done
}

file_part() {
    # A measured profile is valid: 18 tensors of eight hidden layers, ready in order.
    run "bench_profile" "$bin/bench_profile" --rows 8 --rounds 2 --save measured.json
    run "bench_scale reads it" "$bin/bench_scale" --profile measured.json --devices 2
    refuse 2 'nowhere/measured.json' "$bin/bench_profile" --rows 2 --rounds 1 --save nowhere/measured.json
    holds "it has 18 tensors" "$(grep -o '"ready"' measured.json | wc -l) == 18"

    # broken WORDS SED-SCRIPT: the changed profile is refused with these words.
    broken() {
        sed "$2" profile.json >broken.json
        refuse 2 "$1" "$bin/bench_scale" --profile broken.json
    }
    broken 'forward_s: expected a number' 's/"forward_s": \[0.002, /"forward_s": ["x", /'
    broken 'not in the order' 's/"ready": 0.75/"ready": 0.1/'
    broken 'ready: expected a number from 0 to 1' 's/"ready": 1}/"ready": 2}/'
    broken 'tensors: expected a list' 's/"tensors"/"tensor"/'
    broken 'it is not a JSON object' '1s/{/[/'
    # Every number, at both ends of its range.
    numbers='forward_s loss_s backward_s optimizer_s sample_bytes output_bytes messages bytes unit'
    most() { # KEY
        case $1 in *_s) echo 1000000 ;; messages) echo 1000000000 ;; unit) echo 1048576 ;; *) echo 1000000000000000 ;; esac
    }
    # number KEY VALUE: prints a sed script that sets the value.
    number() {
        case $1 in
        forward_s | loss_s | backward_s) echo "s/\"$1\": .[^,]*, [^]]*/\"$1\": [$2, $2/" ;;
        unit) echo "s/\"ready\": 1}/\"ready\": 1, \"unit\": $2}/" ;;
        *) echo "s/\"$1\": [0-9.]*/\"$1\": $2/" ;;
        esac
    }
    sed "$(for key in $numbers; do number "$key" "$(most "$key")"; done)" profile.json >edge.json
    run "the largest numbers" "$bin/bench_scale" --profile edge.json --devices 2
    sed "$(for key in $numbers; do number "$key" 0; done)" profile.json >edge.json
    run "the smallest numbers" "$bin/bench_scale" --profile edge.json --devices 1
    for key in $numbers; do broken "$key: expected a number from 0 to" "$(number "$key" "$(most "$key").5")"; done
    broken 'bytes: expected a number from 0 to' "$(number bytes -1)"
    broken 'loss_s: expected a number from 0 to' 's/"loss_s": .[^]]*/"loss_s": [0, -1/'
    broken 'tensors: expected a list of 1 to 1048576' 's/"tensors": \[/"tensors": [], "others": [/'
    sed 's/"name": "easy"/"name": 3/' profile.json >unnamed.json
    run "a profile without a name" "$bin/bench_scale" --profile unnamed.json --devices 2
    grep -q '^# a network: ' out.txt || fail "$(head -n 1 out.txt)"
    refuse 2 'is needed' "$bin/bench_scale"
    refuse 2 'nowhere.json: No such file' "$bin/bench_scale" --profile nowhere.json
    refuse 2 'expected at most' "$bin/bench_scale" --profile profile.json --devices 0
}

"$2"_part
tally "model $2"
