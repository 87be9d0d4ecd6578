# table.sh: what allreduce.csv (a row per backend, size and round) and trips.csv (a cache line's round trip, a row per
# run) say: the table, the sentences, the figure's data. Sourced by bench/allreduce.sh after compare/section.sh; uses out,
# and backends, sweeps and rounds: what was run. Sets lost: the backends of which most runs stayed disturbed.

# Awk's part of a program: a number of bytes in words; and the largest size that counts as small.
sizes='
    function size(bytes) {
        return bytes % 1048576 == 0 ? bytes / 1048576 " MiB" : bytes % 1024 == 0 ? bytes / 1024 " KiB" : bytes " B"
    }
    BEGIN { small = 4096 }'

write_head() {
    echo backend,world,bytes,min_us,p50_us,p99_us,bound_us,round >"$out/allreduce.csv"
    echo backend,us >"$out/trips.csv"
}

# collect BACKEND ROUND FILE: adds what bench_allreduce has written into FILE. A size without a bound gets NaN.
collect() {
    awk -v backend="$1" -v round="$2" -v OFS=, -v trips="$out/trips.csv" '
        /^# all_reduce / { world = $0; sub(/.* world=/, "", world); sub(/ .*/, "", world) }
        /^# round trip .* p50_us=/ { sub(/.* p50_us=/, ""); print backend, $1 >>trips; next }
        /^#/ { next }
        $1 == "bytes" { for (i = 1; i <= NF; i++) at[$i] = i; next }
        {
            bound = $at["bound_us"]
            print backend, world, $at["bytes"], $at["min_us"], $at["p50_us"], $at["p99_us"], \
                (bound == "-" ? "NaN" : bound), round
        }' "$3" >>"$out/allreduce.csv"
}

# is_quiet RUN: no neighbour has disturbed it (disturbed.sh).
is_quiet() {
    ! grep -qxF -- "$1" "$out/disturbed.txt" 2>/dev/null
}

# collect_undisturbed: collects the runs that were not disturbed; of a backend of which these are fewer than half, all, and
# its name goes into lost.
collect_undisturbed() {
    local backend name options round quiet
    lost=
    write_head
    for backend in $backends; do
        while read -r name options; do
            quiet=0
            for ((round = 1; round <= rounds; round++)); do ! is_quiet "$backend-$name-$round" || quiet=$((quiet + 1)); done
            ((2 * quiet >= rounds)) || lost="${lost:+$lost, }$backend"
            for ((round = 1; round <= rounds; round++)); do
                ((2 * quiet < rounds)) || is_quiet "$backend-$name-$round" || continue
                collect "$backend" "$round" "$out/runs/$backend-$name-$round/output.txt"
            done
        done <<<"$sweeps"
    done
}

# A row per backend and size: backend bytes min p50 p99 bound algbw busbw share, of which each is made of medians over
# the rounds. Without a bound the bound and the share are NaN. The sizes ascend.
size_rows() {
    csv "$quantiles"'
        {
            key = of("backend") OFS of("bytes")
            if (!(key in rounds)) order[++keys] = key
            n = ++rounds[key]
            world = of("world")
            split("min_us p50_us p99_us bound_us", columns, " ")
            for (c = 1; c <= 4; c++) value[key, c, n] = of(columns[c])
        }
        function median(key, c,    list, i) {
            if (value[key, c, 1] == "NaN") return "NaN"
            for (i = 1; i <= rounds[key]; i++) list[i] = value[key, c, i]
            return quantile(list, rounds[key], 0.5)
        }
        END {
            for (k = 1; k <= keys; k++) {
                split(order[k], field, OFS)
                p50 = median(order[k], 2)
                bound = median(order[k], 4)
                algbw = field[2] / p50 / 1e3
                print order[k], median(order[k], 1), p50, median(order[k], 3), bound, algbw, \
                    algbw * 2 * (world - 1) / world, (bound == "NaN" ? "NaN" : bound / p50)
            }
        }' "$out/allreduce.csv" | sort -t $'\t' -s -k 1,1r -k 2,2n # shm before mpi
}

# The table for people.
all_reduce_rows() {
    tabbed backend bytes "min us" "p50 us" "p99 us" algbw busbw "bound us" of
    size_rows | awk -F'\t' -v OFS='\t' "$sizes"'
        function shown(format, number) { return number == "NaN" ? "-" : sprintf(format, number) }
        {
            print $1, size($2), shown("%.2f", $3), shown("%.2f", $4), shown("%.2f", $5), shown("%.2f", $7), \
                shown("%.2f", $8), shown("%.1f", $6), shown("%.2f", $9)
        }'
}

# Two sentences: small messages beside a cache line's round trip, large ones beside the memory bound.
all_reduce_sentences() {
    local trip
    trip=$(csv "$quantiles"'{ list[++n] = of("us") } END { if (n) print quantile(list, n, 0.5) }' "$out/trips.csv")
    size_rows | awk -F'\t' -v trip="$trip" -v lost="$lost" "$sizes"'
        index(", " lost ",", ", " $1 ",") { next }
        !($1 in known) { known[$1]; backend[++n] = $1 }
        $2 <= small { least[$1] = $2; p50[$1] = $4 }
        $9 != "NaN" {
            if (!($1 in worst) || $9 < worst[$1]) worst[$1] = $9
            if ($9 > best[$1]) best[$1] = $9
            if ($2 == 25 * 1048576) bucket[$1] = sprintf(", %.2f at 25 MiB", $9)
        }
        END {
            for (i = 1; i <= n; i++) {
                b = backend[i]
                aim = b == "shm" ? " (aim: at most 2)" : ""
                takes = takes (i == 1 ? "" : ", ") sprintf("through %s %.1f%s", b, p50[b] / (trip ? trip : 1), aim)
                aim = b == "shm" ? " (aim: at least 0.90)" : ""
                if (b in worst) {
                    shares = shares (shares == "" ? "" : "; ") \
                        sprintf("through %s %.2f to %.2f%s%s", b, worst[b], best[b], bucket[b], aim)
                }
            }
            if (trip && n) {
                printf "A cache line goes from one core to another and back in %.3f us. ", trip
                printf "%s takes so many of these round trips: %s.\n", size(least[backend[1]]), takes
            }
            if (shares != "") printf "The share of the memory bound that is reached from 1 MiB on: %s.\n", shares
        }'
}

# plots/allreduce.csv: the bus bandwidth by size, of each backend and of the bound that was measured beside the first;
# and plots/settings.gp: which backends there are, and where the bound begins.
write_all_reduce_plot() {
    size_rows | awk -F'\t' -v settings="$out/plots/settings.gp" '
        !($1 in known) { known[$1]; backend[++n] = $1; names = names " " $1 }
        n == 1 { bytes[++sizes] = $2; bound[$2] = $9 == "NaN" ? "NaN" : sprintf("%.6g", $8 / $9) }
        n == 1 && $9 != "NaN" && !from { from = $2 }
        { busbw[$1, $2] = sprintf("%.6g", $8) }
        END {
            printf "backends = \"%s\"\nbound_from = %d\n", substr(names, 2), from >settings
            gsub(/ /, ",", names)
            print "bytes,bound" names
            for (k = 1; k <= sizes; k++) {
                row = bytes[k] "," bound[bytes[k]]
                for (i = 1; i <= n; i++) row = row "," busbw[backend[i], bytes[k]]
                print row
            }
        }' >"$out/plots/allreduce.csv"
}

# The figure's sentence, from what is drawn, and of no backend that stayed disturbed.
all_reduce_caption() {
    [[ -z $lost ]] || {
        echo "Most of these runs stayed disturbed, so that nothing is said of them."
        return
    }
    awk -F, "$sizes"'
        NR == 1 { n = NF; for (i = 3; i <= NF; i++) name[i] = $i; next }
        { for (i = 3; i <= n; i++) if ($i + 0 > most[i]) { most[i] = $i + 0; at[i] = $1 } }
        $2 != "NaN" { bound = $2; largest = $1 }
        END {
            for (i = 3; i <= n; i++)
                text = text (i == 3 ? "" : ", ") sprintf("%.3g GB/s through %s (at %s)", most[i], name[i], size(at[i]))
            printf "Each link carries at most %s", text
            if (bound) printf "; at %s memory allows %.3g", size(largest), bound
            print "."
        }' "$out/plots/allreduce.csv"
}
