# table.sh: what prices.csv, counts.csv and shapes.csv say: tables, sentences, the figures' data. Sourced by
# promises.sh after compare/section.sh; uses out and models.
#
# A price is the difference to `plain` within a round, then the median over the rounds; by it stand the quartiles.
# What is disturbed is marked so in its row and takes part in no sentence.

# Awk's part of a program for csv that reads prices.csv: all of it is in ms["set/name", round] before the program's END
# begins. A round counts for a row if none of the runs that the row is made of was disturbed.
readings=$quantiles'
    {
        run = of("set") "/" of("name")
        if (!(run in known)) { known[run] = 1; runs[++n_runs] = run }
        if (!(of("round") in seen)) { seen[of("round")] = 1; rounds[++n_rounds] = of("round") }
        ms[run, of("round")] = of("ms")
        disturbed[run, of("round")] = of("disturbed")
    }
    # Fills counted[1 .. the result] with the rounds that count for a row made of these runs ("mlp/plain mlp/noop").
    # Where they are fewer than half, all rounds are there and lost is 1; so it is where the times of one of the runs
    # lie so far apart that something disturbed them, though no probe says it.
    function count_rounds(names,    run, k, i, r, n, bad, one) {
        k = split(names, run, " ")
        for (r = 1; r <= n_rounds; r++) {
            bad = 0
            for (i = 1; i <= k; i++) bad += disturbed[run[i], rounds[r]]
            if (!bad) counted[++n] = rounds[r]
        }
        lost = 2 * n < n_rounds
        for (r = 1; lost && r <= n_rounds; r++) counted[r] = rounds[r]
        if (lost) n = n_rounds
        for (i = 1; i <= k; i++) {
            for (r = 1; r <= n; r++) one[r] = ms[run[i], counted[r]]
            if (quantile(one, n, 0.75) > 1.25 * quantile(one, n, 0.25)) lost = 1
        }
        return n
    }
    function is_of(run, set) { return index(run, set "/") == 1 }
    function name_of(run) { return substr(run, index(run, "/") + 1) }'

# The sentence of what was disturbed as a whole.
nothing_said="All of these runs stayed **disturbed**, so that nothing is said of their times."

# price_rows SET: name, median ms, difference to the first of the set: median, low, high; the median of the ratio to it;
# 1 if that is disturbed, otherwise 0.
price_rows() {
    csv "$readings"'
        END {
            for (k = 1; k <= n_runs; k++) {
                run = runs[k]
                if (!is_of(run, set)) continue
                if (first == "") first = run
                n = count_rounds(first " " run)
                for (i = 1; i <= n; i++) {
                    r = counted[i]
                    list[i] = ms[run, r]
                    more[i] = ms[run, r] - ms[first, r]
                    ratio[i] = ms[run, r] / ms[first, r]
                }
                printf "%s\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%d\n", name_of(run), quantile(list, n, 0.5), \
                    quantile(more, n, 0.5), quantile(more, n, 0.25), quantile(more, n, 0.75), quantile(ratio, n, 0.5), lost
            }
        }' set="$1" "$out/prices.csv"
}

# The table of a model's promises: the price, and what was counted beside what the formula says.
promise_rows() {
    tabbed promise "step ms" "price ms" quartiles messages bytes formula
    price_rows "$1" | awk -F'\t' -v OFS='\t' -v model="$1" -v counts="$out/counts.csv" '
        BEGIN {
            while ((getline line < counts) > 0) {
                split(line, field, ",")
                if (!columns++) { for (i in field) at[field[i]] = i; continue }
                if (field[at["model"]] != model) continue
                formula = field[at["held"]] + 0 ? "same" : field[at["formula_messages"]] "/" field[at["formula_bytes"]]
                counted[field[at["promise"]]] = field[at["messages"]] OFS field[at["bytes"]] OFS formula
            }
        }
        {
            first = NR == 1
            print $1, sprintf("%.2f", $2), ($7 ? "disturbed" : first ? "-" : sprintf("%+.2f", $3)), \
                (first ? "-" : sprintf("%+.2f..%+.2f", $4, $5)), counted[$1]
        }'
}

# One sentence about how many of the counts are those of the formula.
count_sentence() {
    csv '
        { n++; held += of("held") }
        END { printf "Messages and bytes of a step are those of the formula in %d of %d rows.\n", held, n }' "$out/counts.csv"
}

# What a step of two ranks is made of, from half of one device's step on: rows of a name, and the median and quartiles
# in ms, and whether they are disturbed. The rows before "DDP(2)" add up to it.
limit_rows() {
    csv "$readings"'
        function of_limit(name, r) { return ms["limit/" name, r] }
        function pair(r) { return of_limit("pair-0", r) > of_limit("pair-1", r) ? of_limit("pair-0", r) : of_limit("pair-1", r) }
        function ask(kind, r,    whole, half) {
            whole = of_limit("whole-optimizer", r)
            half = of_limit("half-optimizer", r)
            if (kind == 1) return of_limit("whole", r) / 2
            if (kind == 2) return half - whole / 2
            if (kind == 3) return of_limit("half", r) - half - (of_limit("whole", r) - whole) / 2
            if (kind == 4) return pair(r) - of_limit("half", r)
            if (kind == 5) return ms["mlp/noop", r] - pair(r)
            if (kind == 6) return ms["mlp/plain", r] - ms["mlp/noop", r]
            if (kind == 7) return ms["mlp/plain", r]
            if (kind == 8) return ms["mlp/plain", r] / ms["mlp/noop", r]
            return of_limit("whole", r) / ms["mlp/plain", r]
        }
        END {
            kinds = split("half of one device;the optimizer on each;products of half the batch;side by side (memory);" \
                "DDP itself;communication;DDP(2);ratio to noop;speed-up", names, ";")
            n = count_rounds("limit/whole limit/half limit/pair-0 limit/pair-1 mlp/plain mlp/noop")
            for (k = 1; k <= kinds; k++) {
                for (i = 1; i <= n; i++) list[i] = ask(k, counted[i])
                printf "%s\t%.4f\t%.4f\t%.4f\t%d\n", names[k], quantile(list, n, 0.5), quantile(list, n, 0.25), \
                    quantile(list, n, 0.75), lost
            }
        }' "$out/prices.csv"
}

limit_sentence() {
    limit_rows | awk -F'\t' -v nothing="$nothing_said" '
        { of[$1] = $2; lost = $5 }
        END {
            if (lost) { print nothing; exit }
            printf "DDP(2) takes %.2f ms, %.3f times the same without communication (at most 1.06 is aimed at), and is ", \
                of["DDP(2)"], of["ratio to noop"]
            printf "%.2f times as fast as one device. What is missing to 2: ", of["speed-up"]
            printf "the optimizer, which every rank runs whole, %+.2f ms; products of half the batch %+.2f; ", \
                of["the optimizer on each"], of["products of half the batch"]
            printf "two devices on one memory %+.2f; what DDP does besides %+.2f; communication %+.2f.\n", \
                of["side by side (memory)"], of["DDP itself"], of["communication"]
        }'
}

# A row for each number of ranks and of threads of a rank. Its worth in cores is how many times as fast it is as the
# first row, one device with one thread on one core.
thread_rows() {
    tabbed ranks "threads each" "threads per core" "step ms" quartiles "cores' worth"
    csv "$readings"'
        END {
            for (k = 0; k <= n_runs; k++) {
                run = k ? runs[k] : "limit/whole"
                if (k && !is_of(run, "threads")) continue
                split(k ? name_of(run) : "1x1", size, "x")
                n = count_rounds("limit/whole " run)
                for (i = 1; i <= n; i++) {
                    list[i] = ms[run, counted[i]]
                    worth[i] = ms["limit/whole", counted[i]] / list[i]
                }
                print size[1], size[2], sprintf("%.1f", size[1] * size[2] / cores), sprintf("%.2f", quantile(list, n, 0.5)), \
                    sprintf("%.2f-%.2f", quantile(list, n, 0.25), quantile(list, n, 0.75)), \
                    lost ? "disturbed" : sprintf("%.2f", quantile(worth, n, 0.5))
            }
        }' cores="$(count_cores)" "$out/prices.csv"
}

thread_sentence() {
    thread_rows | awk -F'\t' -v nothing="$nothing_said" -v cores="$(count_cores)" '
        NR == 1 || $6 == "disturbed" { next }
        { n++; text = sprintf("%s x %s (worth %s)", $1, $2, $6) }
        n == 1 || $6 + 0 > most { most = $6 + 0; best = text }
        n == 1 || $6 + 0 < least { least = $6 + 0; worst = text }
        END {
            if (n < 2) { print nothing; exit }
            printf "Of these ranks x threads on %d cores, %s is the fastest and %s the slowest.\n", cores, best, worst
        }'
}

# batch_values: rows of a batch, the medians of one device, DP(2) and DDP(2) in ms, and whether they are disturbed.
batch_values() {
    csv "$readings"'
        function median(run,    i) {
            for (i = 1; i <= n; i++) list[i] = ms[run, counted[i]]
            return sprintf("%.2f", quantile(list, n, 0.5))
        }
        END {
            for (k = 1; k <= n_runs; k++) {
                if (runs[k] !~ /^batch-[0-9]+\/single$/) continue
                set = substr(runs[k], 1, index(runs[k], "/") - 1)
                n = count_rounds(set "/single " set "/dp " set "/ddp")
                print substr(set, 7), median(set "/single"), median(set "/dp"), median(set "/ddp"), lost
            }
        }' "$out/prices.csv"
}

# The same as a table, with the fastest.
batch_rows() {
    tabbed "global batch" "one device ms" "DP(2) ms" "DDP(2) ms" fastest
    batch_values | awk -F'\t' -v OFS='\t' '{
        best = "one device"; least = $2
        if ($3 < least) { best = "DP"; least = $3 }
        if ($4 < least) best = "DDP"
        print $1, $2, $3, $4, $5 ? "disturbed" : best
    }'
}

batch_sentence() {
    batch_rows | awk -F'\t' -v nothing="$nothing_said" '
        NR == 1 || $5 == "disturbed" { next }
        { n++; wins[$5]++; if ($5 == "DDP" && first == "") first = $1; if ($5 != "DDP") first = "" }
        END {
            if (!n) { print nothing; exit }
            printf "One device is the fastest at %d of %d batches, DP at %d, DDP at %d", wins["one device"], n, wins["DP"], wins["DDP"]
            print first != "" ? "; from " first " rows on it is DDP." : "."
        }'
}

shape_rows() {
    tabbed hidden buckets "first bucket ready"
    csv '{ print of("hidden"), of("buckets"), of("disturbed") + 0 ? "disturbed" : sprintf("%.0f %%", 100 * of("first_ready")) }' "$out/shapes.csv"
}

# Writes the data of both figures.
write_promise_plots() {
    local model
    {
        echo row,label,price,low,high,disturbed
        for model in $models; do
            price_rows "$model" | awk -F'\t' -v OFS=, -v model="$model" 'NR > 1 { print model ": " $1, $3, $4, $5, $7 }'
        done | awk '{ print NR "," $0 }'
    } >"$out/plots/promises.csv"
    {
        echo batch,single,dp,ddp,disturbed
        batch_values | tr '\t' ,
    } >"$out/plots/batches.csv"
}

promise_sentence() {
    csv '
        of("disturbed") + 0 { next }
        { if (!n++ || of("price") + 0 > most) { most = of("price") + 0; top = of("label") } }
        { if (n == 1 || of("price") + 0 < least) { least = of("price") + 0; low = of("label") } }
        END {
            if (n) printf "The dearest is %s with %+.2f ms per step, the cheapest %s with %+.2f ms.\n", top, most, low, least
            else print nothing
        }' nothing="$nothing_said" "$out/plots/promises.csv"
}
