#!/usr/bin/env bash
# allreduce_section.sh BIN: bench/allreduce.sh. By hand: medians, the table, the sentences and the figure's data of two
# backends, and of one without a bound. Then a small run, in which the program's output, the table and the drawn figure
# agree. No time is judged.
set -euo pipefail
export LC_ALL=C
bin=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
for part in compare/runs compare/tables compare/section allreduce/table; do source "bench/$part.sh"; done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mkdir "$out/plots"
failures=0 lost=

# expect WHAT WANTED GOT
expect() {
    [[ $2 != "$3" ]] || return 0
    printf '%s:\n%s\nnot\n%s\n' "$1" "$3" "$2"
    failures=$((failures + 1))
}

# What the program prints, in two rounds: 4 KiB takes 0.4 and 0.6 us, 25 MiB 2,000 and 3,000 us.
for round in 1 2; do
    cat >"$out/printed.txt" <<END
# all_reduce F32 sum world=4 ranks=processes backend=shm
      bytes     min_us     p50_us     p99_us  algbw  busbw  bound_us    of wrong
       4096       0.30       0.$((2 + 2 * round))       0.90  10.24  15.36         -     -     0
   26214400     900.00    $((1 + round))000.00    5000.00   1.00   1.00    $((800 + 1000 * round)).0  0.90     0
# round trip of a cache line between two cores: p50_us=0.$((round + 1))00 min_us=0.100
END
    [[ $round != 1 ]] || write_head
    collect shm $round "$out/printed.txt"
done
expect "medians" $'shm\t4096\t0.3\t0.5\t0.9\tNaN\t8.192\t12.288\tNaN
shm\t26214400\t900\t2500\t5000\t2300\t10.4858\t15.7286\t0.92' "$(size_rows)"
expect "the table" $'shm\t25 MiB\t900.00\t2500.00\t5000.00\t10.49\t15.73\t2300.0\t0.92' \
    "$(all_reduce_rows | tail -n 1)"
expect "sentences" "A cache line goes from one core to another and back in 0.250 us. 4 KiB takes so many of these round trips: \
through shm 2.0 (aim: at most 2).
The share of the memory bound that is reached from 1 MiB on: through shm 0.92 to 0.92, 0.92 at 25 MiB (aim: at least \
0.90)." "$(all_reduce_sentences)"
# A second backend, which is ten times as slow, and whose ranks share no memory.
cat >"$out/printed.txt" <<END
# all_reduce F32 sum world=4 ranks=processes backend=mpi
      bytes     min_us     p50_us     p99_us  algbw  busbw  bound_us    of wrong
       4096       3.00       5.00       9.00   0.10   0.10         -     -     0
   26214400    9000.00   25000.00   50000.00   1.00   1.00         -     -     0
# no round trip of a cache line: the ranks share no memory (several hosts?)
END
collect mpi 1 "$out/printed.txt"
write_all_reduce_plot
expect "what is drawn" "bytes,bound,shm,mpi
4096,NaN,12.288,1.2288
26214400,17.0963,15.7286,1.57286" "$(cat "$out/plots/allreduce.csv")"
expect "the figure's sentence" "Each link carries at most 15.7 GB/s through shm (at 25 MiB), 1.57 GB/s through mpi (at \
25 MiB); at 25 MiB memory allows 17.1." "$(all_reduce_caption)"
expect "two backends" "4 KiB takes so many of these round trips: through shm 2.0 (aim: at most 2), through mpi 20.0." \
    "$(all_reduce_sentences | sed -n '1s/.* us\. //p')"

# Three rounds, of which one was disturbed: it is left out. If it was two, nothing is left out, and nothing said.
backends=shm rounds=3 sweeps="sweep --factor 4"
for round in 1 2 3; do
    mkdir -p "$out/runs/shm-sweep-$round"
    cat >"$out/runs/shm-sweep-$round/output.txt" <<END
# all_reduce F32 sum world=2 ranks=processes backend=shm
      bytes     min_us     p50_us     p99_us  algbw  busbw  bound_us    of wrong
       4096       0.30       $round.00       9.00  10.24  15.36         -     -     0
# round trip of a cache line between two cores: p50_us=0.500 min_us=0.100
END
done
p50() { size_rows | cut -f 4; }
echo shm-sweep-1 >"$out/disturbed.txt"
collect_undisturbed
expect "the median of undisturbed rounds" 2.5 "$(p50)"
expect "what is lost of three rounds with one disturbed" "" "$lost"
echo shm-sweep-3 >>"$out/disturbed.txt"
collect_undisturbed
expect "the median of disturbed rounds" 2 "$(p50)"
expect "what is lost" shm "$lost"
expect "what is said of a disturbed backend" "" "$(all_reduce_sentences)"
expect "what a disturbed figure says" "Most of these runs stayed disturbed, so that nothing is said of them." \
    "$(all_reduce_caption)"
rm -r "$out/disturbed.txt" "$out/runs"

# A small run.
results="$out/small results"
bench/allreduce.sh --quick --bin "$bin" --out "$results" >"$out/log" 2>&1 || { cat "$out/log" && exit 1; }
for backend in $(tail -n +2 "$results/allreduce.csv" | cut -d, -f1 | uniq); do
    printed=$results/runs/$backend-sweep-1/output.txt
    expect "sizes of $backend" "4 256 16384 1048576 4194304" "$(awk '!/^#/ && $1 != "bytes" { print $1 }' "$printed" | paste -sd ' ')"
    grep -q " backend=$backend\$" "$printed" || expect "the backend" "$backend" "$(head -n 1 "$printed")"
    expect "wrong elements of $backend" 5 "$(awk '!/^#/ && $NF == 0' "$printed" | wc -l)"
    expect "times of $backend in the table" "$(awk '!/^#/ && $1 != "bytes" { print $2, $3, $4 }' "$printed")" \
        "$(awk -v backend="$backend" '$1 == backend { print $4, $5, $6 }' "$results/table.txt")"
done
expect "lines over 80 columns" "" "$(awk 'length($0) > 80 && !/^(the section|MPI is left out)/' "$results/table.txt" "$out/log")"
expect "headings" 1 "$(grep -c '<h2 ' "$results/section.html")"
grep -q '^round 1 of 1: shm (0 of [12] done)$' "$out/log" || expect "progress" "round 1 of 1: shm" "$(cat "$out/log")"
if command -v gnuplot >/dev/null; then
    expect "figures" 1 "$(grep -c '<figure ' "$results/section.html")"
    expect "the title" 1 "$(grep -c '^<title>All-reduce: ' "$results/allreduce.svg")"
    (cd "$results" && gnuplot -e numbers_only=1 plots/allreduce.gp)
    # Bus bandwidths of the table, which has two digits after the point, and of the curves: bytes and a number.
    expect "the drawn lines" "$(awk '$1 == "shm" || $1 == "mpi" { unit = $3 == "MiB" ? 1048576 : $3 == "KiB" ? 1024 : 1
            print $2 * unit, $8 }' "$results/table.txt" | sort)" \
        "$(awk '/^# Curve title: "file using "bytes":line"/ { line = 1; next } /^#/ || !NF { if (!NF) line = 0; next }
            line { printf "%s %.2f\n", $1, $2 }' "$results/plots/allreduce.drawn" | sort)"
    expect "the drawn bound" "$(awk '$1 == "shm" && $NF != "-" { print $2 * 1048576 }' "$results/table.txt")" \
        "$(awk '/^# Curve title: "file using "bytes":"bound""/ { line = 1; next } /^#/ || !NF { if (!NF) line = 0; next }
            line { print $1 }' "$results/plots/allreduce.drawn")"
fi
bench/allreduce.sh --quick --bin "$bin" --out "$results" --resume >"$out/log" 2>&1 || { cat "$out/log" && exit 1; }
grep -q '^kept from before: shm-sweep-1$' "$out/log" || expect "--resume" "a run that was kept" "$(cat "$out/log")"
echo "allreduce_section: $failures failures"
[[ $failures == 0 ]]
