#!/bin/sh
# compare.sh BIN_DIR: bench/compare.sh, from a checkout and into a folder with difficult names; and its figures: the
# numbers drawn by gnuplot are compared with those computed here from the records of the runs.
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
. "$(dirname "$0")/checks.sh"
needs_report
bin=$("$bench/../tests/programs/steady.sh" "$bin" "$work/bin")

# ---- names ---------------------------------------------------------------------------------------------
nasty="a b;\$(touch x)'\""
mkdir "$nasty"
cp -R "$bench" "$nasty/bench"
(cd "$bench/.." && cp --parents common/nn/models.c common/device/link.c dp/data_parallel.h "$work/$nasty") # sources of names and bounds
cd "$nasty"
checks=$((checks + 1))
"$work/$nasty/bench/compare.sh" --bin "$bin" --quick --repeats 1 --patience 2 --model "mlp toy" --world "1 2" \
    --link 40,7 --out "$nasty" >"$work/out.txt" 2>"$work/err.txt" || fail "compare.sh: $(cat "$work/err.txt")"
checks=$((checks + 1))
found=$(find "$work" -name x)
[ -z "$found" ] || fail "a name was carried out as a command: $found"
cd "$nasty"
for file in summary.csv difference.csv equivalence.csv report.md report.html difference.svg loss.svg buckets.svg memory.svg \
    phases.svg throughput.svg timeline.svg; do
    checks=$((checks + 1))
    [ -s "$file" ] || fail "there is no $file"
done
# The same figures as PNG, for slides, if this gnuplot has the terminal.
if echo 'set terminal pngcairo' | gnuplot 2>/dev/null; then
    for file in *.svg; do
        checks=$((checks + 1))
        [ "$(head -c 4 "${file%.svg}.png" | tail -c 3)" = PNG ] || fail "there is no ${file%.svg}.png"
    done
fi
# Figures respond to the mouse: a click toggles a series, and each point has a tooltip.
for file in *.svg; do
    checks=$((checks + 1))
    [ "$(grep -c 'onclick=' "$file")" = "$(grep -c 'gnuplot_plot_' "$file")" ] || fail "$file: not every series answers"
    if grep -qE 'gnuplot_svg|<title>file using' "$file"; then fail "$file: what is gnuplot's own is left"; fi
done
for figure in throughput memory phases timeline buckets difference loss; do
    checks=$((checks + 1))
    grep -qE 'class="value"><title>[a-zA-Z0-9_ ]+: [-+]?[0-9.]+(e-[0-9]+)? [a-zA-Z]' "$figure.svg" || fail "$figure.svg tells no value"
done
checks=$((checks + 2))
grep -q '^key_phases = "[a-z ]*forward [a-z ]*backward' plots/settings.gp && grep -q '>optimizer<' phases.svg || fail "phases.svg lacks its key"
[ "$(grep -c '<figure ' report.html)" = 7 ] || fail "not seven figures in report.html"
grep -q 'href="player.html#scene=model"' report.html && grep -q 'id="devices"' player.html || fail "no steps of more devices"
grep -q 'href="player.html#scene=link"' report.html && grep -q '"id":"memory".*"id":"link"' player.html || fail "no step that plays, of both traces"
grep -qF -- "--trace 'a b;" commands.txt || fail "commands.txt: $(head -n 3 commands.txt)"

checks=$((checks + 1))
wide=$(awk 'length($0) > 80' "$work/out.txt" | head -n 1)
[ -z "$wide" ] || fail "wider than a terminal: $wide"

# The slow link has the requested speed, and each of its numbers is marked as emulated.
link="an emulated link of 40 Gbit/s and 7 us"
checks=$((checks + 6))
[ "$(grep -l 'link 40,7 ' runs/*/command.txt | wc -l)" = "$(find runs -name 'link-*' -o -name 'buckets-*' -o -name 'overlap-slow-*' -o -name 'timeline-link-*' | wc -l)" ] ||
    fail "not all runs over the slow link, or others, have that of --link"
[ "$(sed 's/.*,//' summary-link.csv | paste -sd ' ' -)" = "emulated_link 40 Gbit/s and 7 us 40 Gbit/s and 7 us" ] ||
    fail "summary-link.csv: $(cat summary-link.csv)"
[ "$(sed 's/,.*,/ /' growth.csv | paste -sd ' ' -)" = "strategy emulated_link dp 1 Gbit/s and 20 us ddp 1 Gbit/s and 20 us" ] ||
    fail "growth.csv: $(cat growth.csv)"
[ "$(grep -cE "^- mlp-1024, 2 devices: over $link, (DDP|DP and DDP|disturbed)" report.md)" = 1 ] || fail "no answer over $link"
grep -qE "^\*Over $link DDP's step|^\*Disturbed" report.md || fail "no sentence about buckets over $link"
[ "$(grep -cE "^- (Through shared memory|Over $link|Over an emulated link of 100 Gbit/s and 3 us)( overlap hides|: disturbed)" report.md)" = 3 ] ||
    fail "not a sentence for each network about overlap: $(grep 'overlap' report.md)"

# The first line is the result, and each network has one name throughout.
checks=$((checks + 2))
grep -qE '^\*\*mlp-1024 \(1\.1 M parameters, 4\.5 MB of gradients\), 2 devices: (DDP|DP and DDP|disturbed).* 40 Gbit/s' report.md ||
    fail "line one: $(grep -m 1 '^\*\*' report.md)"
[ "$(cut -d , -f 1-3,5 networks.csv | paste -sd ' ' -)" = "part,model,hidden,parameters speed,mlp,1024;1024,1126410 equivalence,mlp,256;128,50826 \
speed,toy,,165 equivalence,toy,,165 curves,mlp,256;128,50826 timeline,mlp,256;256;256;256;256;256;256;256,479754" ] ||
    fail "networks.csv: $(cat networks.csv)"

# The machine is described.
for fact in 'Processor: .*[0-9]+ cores' 'Compiler: gcc [0-9.]+' 'BLAS: OpenBLAS' 'Commit: [0-9a-z]+' \
    'Cores: [0-9,-]+, governor .*, load at the beginning: [0-9.]+ [0-9.]+ [0-9.]+$' \
    'Variables that change the libraries: '; do
    checks=$((checks + 1))
    grep -qE "^- $fact" report.md || fail "report.md has no $fact"
done

# The sharded optimizer, and fully sharded weights and gradients: equal bits with DDP.
for pair in 'ddp:2,fsdp:2,gradient' 'ddp:2,fsdp:2,weight' 'ddp:3 uneven,fsdp:3 uneven,optimizer' 'ddp:2,zero1:2,gradient' 'ddp:2,zero1:2,optimizer' 'ddp:2,zero1:2 fused,weight' 'ddp:2,zero1:2 fused,optimizer'; do
    checks=$((checks + 1))
    grep -q "^mlp,$pair,.*,1,bitwise,0,1$" equivalence.csv || fail "no row $pair with equal bits in equivalence.csv"
done

# ---- progress --------------------------------------------------------------------------------------------
# If stderr is not a terminal: one plain line per section, with the completed and remaining runs.
checks=$((checks + 1))
grep -Eq '^speed: repeat 1 of 1 \(0 of [0-9]+ runs done\)$' "$work/err.txt" || fail "no begin: $(cat "$work/err.txt")"
grep -Eq '^equivalence: toy \([0-9]+ of [0-9]+ runs done, about [0-9]+:[0-9][0-9] left\)$' "$work/err.txt" ||
    fail "no rest: $(cat "$work/err.txt")"
! tr -d '\n' <"$work/err.txt" | grep -q '[[:cntrl:]]' || fail "a bar where there is no terminal"
runs_said=$(sed -n 's/.* of \([0-9]*\) runs done.*/\1/p' "$work/err.txt" | sort -u)
[ "$runs_said" = "$(find runs -name summary.json | wc -l)" ] || fail "$runs_said runs were announced"

# On a terminal: the build's progress is one line, redrawn in place.
if command -v script >/dev/null; then
    checks=$((checks + 1))
    cat >"$work/build.sh" <<END
. "\$1/setup.sh"
for percent in 10 40; do echo "[ \$percent%] Building C object"; sleep 1; done | setup_progress "\$2"
END
    BENCH=$bench LOG=$work/setup.log SCRIPT=$work/build.sh script -qec 'sh "$SCRIPT" "$BENCH" "$LOG"' /dev/null \
        </dev/null >"$work/terminal.txt" 2>&1 || fail "a build's progress: $(cat "$work/terminal.txt")"
    grep -q '40 % built, about 0:0[1-9] left' "$work/terminal.txt" || fail "$(cat "$work/terminal.txt")"
    [ "$(wc -l <"$work/setup.log")" = 2 ] || fail "not all of a build's lines are in its log"
fi
# ---- what was drawn -------------------------------------------------------------------------------------
# drawn NAME: "panel curve x y ..." for every point that the figure shows
drawn() {
    gnuplot -e numbers_only=1 "plots/$1.gp" >gnuplot.txt 2>&1 || fail "gnuplot: $(cat gnuplot.txt)"
    awk '/^# Curve [0-9]+ of/ { curve = $3; panel += curve == 0; next }
        /^#/ || !NF || $NF == "u" { next }
        { line = panel - 1 " " curve; for (i = 1; i < NF; i++) line = line " " $i; print line }' "plots/$1.drawn"
}
# by_name: awk functions that read columns by name
by_name='FNR == 1 { split("", at); for (i = 1; i <= NF; i++) at[$i] = i; file++; next }
    function of(name) { if (!(name in at)) { print "no column", name; exit 1 } return $at[name] }'
csv() {
    program=$1
    shift
    awk -F, "$by_name
$program" "$@"
}
# agree WHAT WANTED SEEN: the same number of lines, and the same numbers within gnuplot's printed precision.
agree() {
    checks=$((checks + 1))
    sort "$2" >wanted.txt
    sort "$3" >seen.txt
    [ -s wanted.txt ] || fail "$1: nothing is expected"
    [ "$(wc -l <wanted.txt)" = "$(wc -l <seen.txt)" ] ||
        fail "$1: $(wc -l <wanted.txt) points expected, $(wc -l <seen.txt) drawn"
    paste -d ' ' wanted.txt seen.txt | awk '{
            for (i = 1; i <= NF / 2; i++) {
                a = $i; b = $(NF / 2 + i); d = a < b ? b - a : a - b; size = a < 0 ? -a : a
                if (d > 1e-6 * size + 1e-12) { print "expected and drawn:", $0; exit }
            }
        }' >wrong.txt
    [ ! -s wrong.txt ] || fail "$1: $(cat wrong.txt)"
}

# difference: DDP's milliseconds minus DP's, a panel for each model; small phases are combined into one bar, and the
# bars add up.
csv 'BEGIN { n = split("data scatter replicate forward gather loss backward reduce exposed optimizer other", phase, " ") }
    of("world_size") != 2 || of("strategy") == "fsdp" { next }
    { m = of("model"); s = of("strategy") == "ddp" ? 1 : -1; if (!(m in panel)) panel[m] = panels++
      for (i = 1; i <= n; i++) d[m, i] += s * of(phase[i] "_ms")
      step[m] += s * of("step_ms_p50"); if (s < 0) dp[m] = of("step_ms_p50") }
    END { for (m in panel) {
        row = 0; left = step[m]
        for (i = 1; i < n; i++) {
            size = d[m, i] < 0 ? -d[m, i] : d[m, i]
            if (size < 0.01 * dp[m]) continue
            printf "%d %d %.4f\n", panel[m], ++row, d[m, i]; left -= d[m, i]
        }
        printf "%d %d %.4f\n%d %d %.4f\n", panel[m], row + 1, left, panel[m], row + 2, step[m]
    } }' summary.csv >wanted-difference.txt
drawn difference | awk '$2 == 0 { printf "%s %s %.4f\n", $1, $4, $3 * 2 }' >drawn-difference.txt
agree "difference.svg" wanted-difference.txt drawn-difference.txt

# buckets: the step's time for every cap.
csv '{ printf "0 0 %s %s %s %s\n0 1 %s %s\n", of("position"), of("step_ms_p50"), of("step_ms_p25"), of("step_ms_p75"), \
    of("position"), of("step_ms_p50") }' plots/buckets.csv >wanted-buckets.txt
drawn buckets | awk '$2 == 0 { print $1, $2, $3, $4, $5, $6 } $2 == 1 { print $1, $2, $3, $4 }' >drawn-buckets.txt
agree "buckets.svg" wanted-buckets.txt drawn-buckets.txt

# loss: means over groups of steps, at most 60 points; below, the distance from one device.
runs="single-1 dp-2 ddp-2"
set --
for run in $runs; do set -- "$@" "runs/curve-mlp-$run/steps.csv"; done
csv '{ loss[file, of("step")] = of("loss"); if (of("step") >= steps) steps = of("step") + 1 }
    END {
        per_point = int((steps + 59) / 60)
        for (f = 1; f <= file; f++)
            for (begin = 0; begin < steps; begin += per_point) {
                n = sum = far = 0
                for (s = begin; s < begin + per_point && s < steps; s++) {
                    n++; sum += loss[f, s]; d = loss[f, s] - loss[1, s]; if (d < 0) d = -d
                    far += d < 1e-9 ? 1e-9 : d
                }
                printf "0 %d %.9g %.9g\n", f - 1, begin + per_point / 2, sum / n
                if (f > 1) printf "1 %d %.9g %.9g\n", f - 2, begin + per_point / 2, far / n
            }
    }' "$@" >wanted-loss.txt
drawn loss | grep -v '^2 ' | grep -v NaN >drawn-loss.txt
agree "loss.svg" wanted-loss.txt drawn-loss.txt
# DP and DDP have equal weights: their distances from one device differ only by the rounding of printed losses, which
# are means over a batch or over the ranks' parts of it.
checks=$((checks + 1))
awk '$1 == 1 { far[$2, $3] = $4; at[$3] = 1 }
    END {
        for (x in at) {
            d = far[0, x] - far[1, x]
            if (d > 5e-7 || d < -5e-7) print "at step", x, "DP", far[0, x], "DDP", far[1, x]
        }
    }' drawn-loss.txt >wrong.txt
[ ! -s wrong.txt ] || fail "DP and DDP are not as far from one device: $(head -n 3 wrong.txt)"

# throughput: a panel for each model; error bars, then lines, then one device; rings mark disturbed runs.
csv '!(of("model") in panel) { panel[of("model")] = panels++ }
    of("strategy") != "fsdp" {
        p = panel[of("model")]; speed = of("samples_per_s_p50"); batch = of("global_batch") * 1000
        strategy = of("strategy")
        for (c = 0; c < 2; c++)
            if (strategy == "single" || strategy == (c ? "ddp" : "dp")) {
                printf "%d %d %s %s %.9g %.9g\n", p, 2 + c, of("world_size"), speed, \
                    batch / of("step_ms_p75"), batch / of("step_ms_p25")
                print p, 4 + c, of("world_size"), speed
            }
        if (strategy == "single") print p, 6, 1, speed
        print p, 7, of("world_size"), speed
    }' summary.csv >wanted-throughput.txt
rings='$2 == 2 || $2 == 3 { print $1, $2, $3, $4, $5, $6 } $2 > 3 { print $1, $2, $3, $4 }' # without colours and sizes
drawn throughput | awk "$rings" >drawn-throughput.txt
agree "throughput.svg" wanted-throughput.txt drawn-throughput.txt

# memory and phases: bars in the order of the rows; each phase is stacked on the previous one.
csv '{ p = of("model") != "mlp"; x = row[p]++
        printf "%d 0 %d %.9g\n", p, x, of("peak_bytes_device0") / 1e6
        if (of("world_size") > 1) printf "%d 1 %d %.9g\n", p, x, of("peak_bytes_other") / 1e6
    }' summary.csv >wanted-memory.txt
drawn memory | awk '$1 < 2' >drawn-memory.txt
agree "memory.svg" wanted-memory.txt drawn-memory.txt
csv 'BEGIN { n = split("data scatter replicate forward gather loss backward reduce exposed optimizer other", phase, " ") }
    of("strategy") != "fsdp" { p = of("model") != "mlp"; x = ++row[p]; sum = 0
        for (i = 1; i <= n; i++) {
            printf "%d %d %d %.6f %.6f\n", p, i - 1, x, sum, sum + of(phase[i] "_ms")
            sum += of(phase[i] "_ms")
        }
        if (sum < 0.5 * of("step_ms_p25") || sum > 1.5 * of("step_ms_p75")) print "a bar is no step"
    }' summary.csv >wanted-phases.txt
drawn phases | awk '$1 < 2 && $2 < 11 { printf "%d %d %d %.6f %.6f\n", $1, $2, $4, $5, $6 }' >drawn-phases.txt
agree "phases.svg" wanted-phases.txt drawn-phases.txt
# If all runs were disturbed, the key has no phases.
mkdir empty
cp -r plots empty/plots
sed -i 's/^key_phases = .*/key_phases = ""/' empty/plots/settings.gp
(cd empty && gnuplot plots/phases.gp) >gnuplot.txt 2>&1 || fail "an empty key: $(cat gnuplot.txt)"

# timeline: spans by phase, and arrows from a rank's main thread to its communicator.
csv 'BEGIN { split("data scatter replicate forward gather loss backward reduce exposed optimizer other moving waiting", kind, " ") }
    { for (i in kind) if (kind[i] == of("phase"))
        printf "0 %d %.9g %s %s %s %.9g %.9g\n", i - 1, (of("begin_ms") + of("end_ms")) / 2, of("row"), \
            of("begin_ms"), of("end_ms"), of("row") - 0.4, of("row") + 0.4 }' plots/timeline.csv >wanted-timeline.txt
csv '{ printf "0 26 %s %.9g %.9g %.9g\n", of("from_ms"), of("from_row") + 0.4, \
        of("to_ms") - of("from_ms"), of("to_row") - of("from_row") - 0.8 }' plots/arrows.csv >>wanted-timeline.txt
timeline='$2 < 13 { print } # curves from 13 on are hatches
    $2 == 26 { print $1, $2, $3, $4, $5, $6 }'
drawn timeline | awk "$timeline" >drawn-timeline.txt
agree "timeline.svg" wanted-timeline.txt drawn-timeline.txt
checks=$((checks + 1))
csv '{ n[of("from_row")]++; if (of("to_ms") < of("from_ms") || of("to_row") != of("from_row") + 1) print "bad arrow", $0 }
    END { for (row in n) ranks++; if (ranks < 1 || ranks > 2) print ranks + 0, "ranks have arrows" }' plots/arrows.csv >wrong.txt
[ ! -s wrong.txt ] || fail "arrows: $(cat wrong.txt)"

# Disturbed runs are grey, and nothing else is.
for disturbed in 0 1; do
    for file in plots/*.csv; do
        { head -n 1 "$file" && csv '{ if ("disturbed" in at) $at["disturbed"] = to; print }' OFS=, to=$disturbed "$file"; } >marked.txt
        mv marked.txt "$file"
    done
    for name in throughput phases difference buckets; do
        checks=$((checks + 1))
        gnuplot "plots/$name.gp" >gnuplot.txt 2>&1
        greys=$(grep -cE 'rgb\( *187, *187, *187\)' "$name.svg") || true
        [ $name != phases ] || [ "$(grep -c '>disturbed<' phases.svg)" = $((disturbed * $(sed 1d summary.csv | grep -cv ^fsdp))) ] ||
            fail "phases.svg says so of $(grep -c '>disturbed<' phases.svg) bars, and disturbed is $disturbed"
        [ "$((greys > 0))" = $disturbed ] || fail "$name.svg has $greys grey parts, and disturbed is $disturbed"
    done
done

# Columns are found by name: with the columns in reverse order the figures are unchanged.
for file in plots/*.csv; do
    awk -F, -v OFS=, '{ for (i = 1; i <= NF / 2; i++) { t = $i; $i = $(NF + 1 - i); $(NF + 1 - i) = t } print }' \
        "$file" >turned.txt
    mv turned.txt "$file"
done
for name in loss throughput memory phases timeline difference; do
    checks=$((checks + 1))
    drawn "$name" | sort >turned.txt
    case $name in # as above
    loss) grep -v '^2 ' turned.txt | grep -v NaN ;;
    throughput) awk "$rings" turned.txt ;;
    memory) awk '$1 < 2' turned.txt ;;
    difference) awk '$2 == 0 { printf "%s %s %.4f\n", $1, $4, $3 * 2 }' turned.txt | sort ;;
    phases) awk '$1 < 2 && $2 < 11 { printf "%d %d %d %.6f %.6f\n", $1, $2, $4, $5, $6 }' turned.txt | sort ;;
    timeline) awk "$timeline" turned.txt ;;
    *) cat turned.txt ;;
    esac >drawn-again.txt
    sort "drawn-$name.txt" | cmp -s - drawn-again.txt || fail "$name.svg counts columns"
done

cd "$work"
tally compare
