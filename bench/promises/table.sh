# table.sh: what prices.csv, counts.csv and shapes.csv say: tables, sentences, the figures' data. Sourced by
# promises.sh after compare/section.sh; uses out.
#
# A price is the difference to `plain` within a round, then the median over the rounds; by it stand the quartiles.

# price_rows SET: name, median ms, difference to plain: median, low, high; and the median of the ratio to plain.
price_rows() {
    csv "$quantiles"'
        of("set") == set {
            name = of("name")
            if (!(name in rounds)) order[++names] = name
            n = ++rounds[name]
            at_round[name, n] = of("round")
            ms[name, of("round")] = of("ms")
        }
        END {
            for (k = 1; k <= names; k++) {
                name = order[k]
                for (i = 1; i <= rounds[name]; i++) {
                    r = at_round[name, i]
                    list[i] = ms[name, r]
                    more[i] = ms[name, r] - ms[order[1], r]
                    ratio[i] = ms[name, r] / ms[order[1], r]
                }
                n = rounds[name]
                printf "%s\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\n", name, quantile(list, n, 0.5), quantile(more, n, 0.5), \
                    quantile(more, n, 0.25), quantile(more, n, 0.75), quantile(ratio, n, 0.5)
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
            print $1, sprintf("%.2f", $2), (first ? "-" : sprintf("%+.2f", $3)), \
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
# in ms. The rows before "DDP(2)" add up to it.
limit_rows() {
    csv "$quantiles"'
        of("set") == "limit" || of("set") == "mlp" && (of("name") == "plain" || of("name") == "noop") {
            name = of("name")
            r = of("round")
            if (!(r in seen)) { seen[r] = 1; rounds[++n] = r }
            ms[name, r] = of("ms")
        }
        function ask(kind, r) {
            if (kind == 1) return ms["whole", r] / 2
            if (kind == 2) return ms["half-optimizer", r] - ms["whole-optimizer", r] / 2
            if (kind == 3) return ms["half", r] - ms["half-optimizer", r] - (ms["whole", r] - ms["whole-optimizer", r]) / 2
            if (kind == 4) return pair(r) - ms["half", r]
            if (kind == 5) return ms["noop", r] - pair(r)
            if (kind == 6) return ms["plain", r] - ms["noop", r]
            return ms["plain", r]
        }
        function pair(r) { return ms["pair-0", r] > ms["pair-1", r] ? ms["pair-0", r] : ms["pair-1", r] }
        END {
            split("half of one device;the optimizer on each;products of half the batch;side by side (memory);DDP itself;communication;DDP(2)", \
                names, ";")
            for (k = 1; k <= 7; k++) {
                for (i = 1; i <= n; i++) list[i] = ask(k, rounds[i])
                printf "%s\t%.4f\t%.4f\t%.4f\n", names[k], quantile(list, n, 0.5), quantile(list, n, 0.25), quantile(list, n, 0.75)
            }
            for (i = 1; i <= n; i++) list[i] = ms["plain", rounds[i]] / ms["noop", rounds[i]]
            printf "ratio to noop\t%.4f\t%.4f\t%.4f\n", quantile(list, n, 0.5), quantile(list, n, 0.25), quantile(list, n, 0.75)
            for (i = 1; i <= n; i++) list[i] = ms["whole", rounds[i]] / ms["plain", rounds[i]]
            printf "speed-up\t%.4f\t%.4f\t%.4f\n", quantile(list, n, 0.5), quantile(list, n, 0.25), quantile(list, n, 0.75)
        }' "$out/prices.csv"
}

limit_sentence() {
    limit_rows | awk -F'\t' '
        { of[$1] = $2 }
        END {
            printf "DDP(2) takes %.2f ms, %.3f times the same without communication (at most 1.06 is aimed at), and is ", \
                of["DDP(2)"], of["ratio to noop"]
            printf "%.2f times as fast as one device. What is missing to 2: ", of["speed-up"]
            printf "the optimizer, which every rank runs whole, %+.2f ms; products of half the batch %+.2f; ", \
                of["the optimizer on each"], of["products of half the batch"]
            printf "two devices on one memory %+.2f; what DDP does besides %+.2f; communication %+.2f.\n", \
                of["side by side (memory)"], of["DDP itself"], of["communication"]
        }'
}

thread_rows() {
    tabbed threads "step ms" quartiles
    price_quartiles threads
}

# price_quartiles SET: name, median ms, quartiles of the ms themselves.
price_quartiles() {
    csv "$quantiles"'
        of("set") == set { if (!(of("name") in n)) order[++names] = of("name"); list[of("name"), ++n[of("name")]] = of("ms") }
        END {
            for (k = 1; k <= names; k++) {
                for (i = 1; i <= n[order[k]]; i++) one[i] = list[order[k], i]
                m = n[order[k]]
                printf "%s\t%.2f\t%.2f-%.2f\n", order[k], quantile(one, m, 0.5), quantile(one, m, 0.25), quantile(one, m, 0.75)
            }
        }' set="$1" "$out/prices.csv"
}

# A row per batch: the medians of one device, DP(2) and DDP(2), and which is the fastest.
batch_rows() {
    local set
    tabbed "global batch" "one device ms" "DP(2) ms" "DDP(2) ms" fastest
    for set in $(cut -d, -f1 "$out/prices.csv" | grep '^batch-' | sort -t- -k2n -u); do
        price_quartiles "$set" | awk -F'\t' -v OFS='\t' -v rows="${set#batch-}" '
            { ms[$1] = $2 }
            END {
                best = "one device"; least = ms["single"]
                if (ms["dp"] < least) { best = "DP"; least = ms["dp"] }
                if (ms["ddp"] < least) { best = "DDP"; least = ms["ddp"] }
                print rows, ms["single"], ms["dp"], ms["ddp"], best
            }'
    done
}

batch_sentence() {
    batch_rows | awk -F'\t' '
        NR > 1 { n++; wins[$5]++; if ($5 == "DDP" && first == "") first = $1; if ($5 != "DDP") first = "" }
        END {
            printf "One device is the fastest at %d of %d batches, DP at %d, DDP at %d", wins["one device"], n, wins["DP"], wins["DDP"]
            print first != "" ? "; from " first " rows on it is DDP." : "."
        }'
}

shape_rows() {
    tabbed hidden buckets "first bucket ready"
    csv '{ print of("hidden"), of("buckets"), sprintf("%.0f %%", 100 * of("first_ready")) }' "$out/shapes.csv"
}

# Writes the data of both figures.
write_promise_plots() {
    {
        echo row,label,price,low,high
        local model
        for model in $models; do
            price_rows "$model" | awk -F'\t' -v OFS=, -v model="$model" \
                'NR > 1 { print model ": " $1, $3, $4, $5 }'
        done | awk '{ print NR "," $0 }'
    } >"$out/plots/promises.csv"
    {
        echo batch,single,dp,ddp
        batch_rows | awk -F'\t' -v OFS=, 'NR > 1 { print $1, $2, $3, $4 }'
    } >"$out/plots/batches.csv"
}

promise_sentence() {
    csv '
        { if (!n++ || of("price") + 0 > most) { most = of("price") + 0; top = of("label") } }
        { if (n == 1 || of("price") + 0 < least) { least = of("price") + 0; low = of("label") } }
        END { if (n) printf "The dearest is %s with %+.2f ms per step, the cheapest %s with %+.2f ms.\n", top, most, low, least }
    ' "$out/plots/promises.csv"
}
