# summarize.awk: one row of summary.csv from the steps.csv files of one configuration's repeats.
#
#   awk -v header=1 -f summarize.awk                                          prints the names of the columns
#   awk -v skip=2 -v facts="strategy=ddp,model=mlp,..." -f summarize.awk \
#       REPEAT1/steps.csv REPEAT2/steps.csv ... [only_phases=1 OTHER/steps.csv]
#
# facts: the columns that hold no times. The first `skip` steps of every repeat warm up and do not count.
# Times of phases are means over the middle half of the steps (from quartile to quartile), so that they
# add up to about the median step; where a file follows only_phases=1, they are that file's. Without files the
# row has no times, and timed is 0. spread is how far the repeats' own medians lie apart,
# (largest - smallest) / smallest. disturbed is 1 where spread is more than a quarter, or where the facts say so
# (because of the probes: disturbed.sh). No sentence speaks of a row that is disturbed.
BEGIN {
    FS = ","
    columns = "strategy,model,device,backend,world_size,global_batch,samples_per_s_p50," \
        "step_ms_p25,step_ms_p50,step_ms_p75,peak_bytes_device0,peak_bytes_other," \
        "data_ms,scatter_ms,replicate_ms,forward_ms,gather_ms,loss_ms,backward_ms,reduce_ms," \
        "exposed_ms,optimizer_ms,other_ms,moved_bytes_per_step,repeats,steps,spread,timed,communication_ms," \
        "disturbed"
    if (header) {
        print columns
        exit
    }
    count_of_columns = split(columns, column_names, ",")
    for (c = 1; c <= count_of_columns; c++)
        if (column_names[c] ~ /_ms$/) phase[++phases] = column_names[c]
    for (i = split(facts, fact, ","); i > 0; i--)
        value[substr(fact[i], 1, index(fact[i], "=") - 1)] = substr(fact[i], index(fact[i], "=") + 1)
}

FNR == 1 {
    if (of_repeat) end_of_repeat()
    if (only_phases) n_phases = 0
    split("", column)
    for (i = 1; i <= NF; i++) column[$i] = i
    if (!only_phases) repeats++
    of_repeat = 0
    next
}

FNR > skip + 1 {
    n_phases++
    of_step[n_phases] = $column["step_ms"]
    for (p = 1; p <= phases; p++) spent[p, n_phases] = $column[phase[p]]
    if (only_phases) next
    n++
    of_repeat++
    milliseconds[n] = $column["step_ms"]
    mine[of_repeat] = $column["step_ms"]
    speed[n] = $column["samples_per_s"]
}

function end_of_repeat(    median) {
    median = quantile(mine, of_repeat, 0.5)
    if (smallest == "" || median < smallest) smallest = median
    if (largest == "" || median > largest) largest = median
    of_repeat = 0
}

# Sorts a copy: insertion sort, a few hundred values.
function quantile(values, count, q,    sorted, i, j, at) {
    for (i = 1; i <= count; i++) {
        for (j = i; j > 1 && sorted[j - 1] > values[i] + 0; j--) sorted[j] = sorted[j - 1]
        sorted[j] = values[i] + 0
    }
    at = 1 + q * (count - 1)
    i = int(at)
    return i >= count ? sorted[count] : sorted[i] + (at - i) * (sorted[i + 1] - sorted[i])
}

function mean_phases(    i, p, p25, p75, middle, sum) {
    p25 = quantile(of_step, n_phases, 0.25)
    p75 = quantile(of_step, n_phases, 0.75)
    for (i = 1; i <= n_phases; i++) {
        if (of_step[i] < p25 || of_step[i] > p75) continue
        middle++
        for (p = 1; p <= phases; p++) sum[p] += spent[p, i]
    }
    for (p = 1; p <= phases; p++) value[phase[p]] = sprintf("%.4f", sum[p] / middle)
}

function measure() {
    value["samples_per_s_p50"] = sprintf("%.1f", quantile(speed, n, 0.5))
    value["step_ms_p25"] = sprintf("%.4f", quantile(milliseconds, n, 0.25))
    value["step_ms_p50"] = sprintf("%.4f", quantile(milliseconds, n, 0.5))
    value["step_ms_p75"] = sprintf("%.4f", quantile(milliseconds, n, 0.75))
    value["spread"] = sprintf("%.3f", smallest > 0 ? (largest - smallest) / smallest : 0)
    if (value["spread"] > 0.25) value["disturbed"] = 1 # whatever the facts say
    mean_phases()
}

END {
    if (header) exit
    if (of_repeat) end_of_repeat()
    if (repeats && !n) {
        print "error: no steps were measured for " facts > "/dev/stderr"
        exit 1
    }
    value["disturbed"] += 0
    value["repeats"] = repeats ? repeats : 1
    value["steps"] = n + 0
    value["timed"] = n > 0 ? 1 : 0
    if (n) measure()
    for (c = 1; c <= count_of_columns; c++)
        printf "%s%s", value[column_names[c]], c < count_of_columns ? "," : "\n"
}
