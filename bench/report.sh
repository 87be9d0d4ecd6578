# report.sh: the terminal's table, report.md and report.html, from the CSV files and the runs' records.
# Sourced by compare.sh at the end of its work.

# Speed, one line per configuration: fields separated by tabs.
speed_rows() {
    awk -F, -v OFS='\t' 'NR == 1 {
            print "model", "strategy", "devices", "samples/s", "step ms", "p25-p75", "speed-up", \
                "device 0 MB", "others MB", "moved MB/step"
            next
        }
        $1 == "single" { one[$2] = $7 }
        {
            print $2, $1, $5, sprintf("%.0f", $7), sprintf("%.2f", $9), sprintf("%.2f-%.2f", $8, $10), \
                sprintf("%.2f", $7 / one[$2]), sprintf("%.2f", $11 / 1e6), \
                ($5 == 1 ? "-" : sprintf("%.2f", $12 / 1e6)), sprintf("%.2f", $24 / 1e6)
        }' "$out/summary.csv"
}

# The longer runs: accuracy, and the largest distance of the loss from one device's and from DP's.
curve_rows() {
    local model strategy world run
    printf 'model\tstrategy\tdevices\tepochs\tlast loss\ttest accuracy\tlargest loss difference to one device\tto DP\n'
    for model in $(curve_models); do
        while read -r strategy world; do
            run=$out/runs/curve-$model-$strategy-$world
            printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$model" "$strategy" "$world" "$epochs" \
                "$(json final_loss "$run/summary.json" | awk '{ printf "%.3g", $1 }')" \
                "$(json test_accuracy "$run/summary.json" | awk '{ print NF ? sprintf("%.2f %%", 100 * $1) : "-" }')" \
                "$(loss_distance "$run" "$out/runs/curve-$model-single-1")" \
                "$([[ $strategy != ddp ]] && echo - || loss_distance "$run" "$out/runs/curve-$model-dp-$world")"
        done < <(configurations)
    done
}

loss_distance() {
    [[ $1 != "$2" ]] || { echo - && return; }
    paste -d, "$1/steps.csv" "$2/steps.csv" | awk -F, '
        NR > 1 { d = $4 - $21; if (d < 0) d = -d; if (d > most) most = d }
        END { print most == 0 ? "0" : sprintf("%.1e", most) }'
}

# Equivalence, one line per pair of runs.
equivalence_rows() {
    awk -F, -v OFS='\t' 'NR == 1 {
            print "model", "a", "b", "required", "tensors", "gradients ULP", "weights ULP", "optimizer ULP", "buffers ULP", "held"
            next
        }
        {
            pair = $1 OFS $2 OFS $3 OFS ($12 == "bitwise" ? "same bits" : "tolerance")
            if (!(pair in rows)) order[++n] = pair
            rows[pair]++
            held[pair] += $14
            if (!((pair, $4) in ulp) || $10 > ulp[pair, $4] + 0) ulp[pair, $4] = $10 + 0
        }
        function worst(pair, what) { return (pair, what) in ulp ? ulp[pair, what] : "-" }
        END {
            for (i = 1; i <= n; i++) {
                p = order[i]
                print p, rows[p], worst(p, "gradient"), worst(p, "weight"), worst(p, "optimizer"), \
                    worst(p, "buffer"), (held[p] == rows[p] ? "yes" : "NO: " rows[p] - held[p] " differ")
            }
        }' "$out/equivalence.csv"
}

# Tab-separated rows as a Markdown table, and as aligned columns for the terminal.
markdown_table() {
    awk -F'\t' '{
            printf "|"
            for (i = 1; i <= NF; i++) printf " %s |", $i
            print ""
        }
        NR == 1 {
            printf "|"
            for (i = 1; i <= NF; i++) printf "---|"
            print ""
        }'
}

terminal_table() {
    awk -F'\t' '{
            for (i = 1; i <= NF; i++) {
                cell[NR, i] = $i
                if (length($i) > wide[i]) wide[i] = length($i)
            }
        }
        END {
            for (r = 1; r <= NR; r++) {
                for (i = 1; i <= NF; i++) printf (i < 3 ? "%-*s  " : "%*s  "), wide[i], cell[r, i]
                print ""
            }
        }'
}

# Configurations whose repeats disagree: something else was using the machine.
disturbed() {
    awk -F, 'NR > 1 && $27 > 0.25 { printf "%s %s:%s (%.0f %%)\n", $2, $1, $5, 100 * $27 }' "$out/summary.csv"
}

verdict_line() {
    local rows held
    rows=$(awk 'END { print NR - 1 }' "$out/equivalence.csv")
    held=$(awk -F, 'NR > 1 { n += $14 } END { print n + 0 }' "$out/equivalence.csv")
    if [[ $equivalence_failures == 0 ]]; then
        echo "Equivalence: held in all $comparisons comparisons, $rows tensors."
    else
        echo "Equivalence: BROKEN in $equivalence_failures of $comparisons comparisons ($held of $rows tensors held)."
    fi
}

machine_lines() {
    local record
    record=$(find "$out/runs" -name config.json | sort | head -n 1)
    echo "- Processor: $(lscpu | sed -n 's/^Model name: *//p' | head -n 1), $cores cores for this run"
    echo "- Memory: $(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo)"
    echo "- System: $(uname -sr), $(. /etc/os-release && echo "$PRETTY_NAME")"
    echo "- Compiler: $(json compiler "$record" | sed 's/^[0-9]/gcc &/'), Release"
    echo "- BLAS: $(json blas "$record")"
    echo "- Commit: $(commit_line)"
    echo "- Date: $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "- Command: \`$asked\`"
}

commit_line() {
    local commit
    commit=$(git rev-parse --short HEAD 2>/dev/null) || { echo "none" && return; }
    echo "$commit$([[ -z $(git status --porcelain) ]] || echo ", with local changes")"
}

write_report() {
    report_text >"$out/report.md"
    awk -v folder="$out" -v title="DataParallel and DistributedDataParallel, compared" \
        -f bench/markdown.awk "$out/report.md" >"$out/report.html"
}

# What a reader should know before believing the speed-ups.
speed_remarks() {
    local widest=${worlds##* }
    if [[ $widest -gt $cores ]]; then
        echo "- Devices here are threads or processes on $cores cores. Beyond $cores devices nothing can get"
        echo "faster: they take turns, and pay for moving data on top. The dotted line is that limit."
    fi
    echo "- DDP hides communication behind the backward pass only if something can move the data meanwhile:"
    echo "on GPUs the copy engines, here a communication thread that needs a core of its own. With as many"
    echo "devices as cores there is none to spare, and hidden communication is paid for in a slower backward."
    if [[ -n $(disturbed) ]]; then
        echo "- **Disturbed:** the repeats of these configurations have medians more than 25 % apart, so"
        echo "something else used the machine; do not draw conclusions from them: $(disturbed | paste -sd, | sed 's/,/, /g')."
    else
        echo "- The medians of the repeats of every configuration lie within 25 % of each other: nothing"
        echo "disturbed the machine noticeably."
    fi
}

report_text() {
    cat <<END
# DataParallel and DistributedDataParallel, compared

The same networks, the same weights to begin with, the same batches: trained by one device, by
DataParallel (DP: one process, one thread per device) and by DistributedDataParallel (DDP: one process per
device). **$(verdict_line)**

$(speed_rows | markdown_table)

Every row: $repeats runs, interleaved with those of the other rows, all their steps but the first $warm_up of each;
medians, and quartiles where a range stands. The global batch is the same in all rows of a model:
$(awk -F, '$1 == "single" { printf "%s%s %d", sep, $2, $6; sep = ", " }' "$out/summary.csv") samples.

## Speed

![Training speed](throughput.svg)

How to read it: to the right the same batch is shared by more devices; perfect scaling would climb along the
dashed line. The gap below it is what parallelism costs: copying, waiting, and whatever one device does alone.
Where DDP runs above DP, look for the reason in the next figure.

$(speed_remarks)

## Where a step goes

![Phases of a step](phases.svg)

How to read it: a bar is one step as the thread that drives it sees it: on DP the one process, on DDP
rank 0. Blue and green is computing, warm colours move data. With N devices the blue parts should shrink to
one Nth. DP pays four times per step: *scatter* (inputs out), *replicate* (weights out), *gather* (outputs
back) and *reduce* (gradients back); its loss and optimizer run on device 0 alone while the others wait.
DDP has only *exposed*, the part of the all-reduce that the backward pass did not hide.

## Memory

![Peak memory](memory.svg)

How to read it: the taller bar decides which model fits. DP keeps on device 0 the gathered outputs, all
gradients and the optimizer's state; the others hold a copy of the weights and their chunk. In DDP every
device holds weights, gradients and optimizer state, so that all bars are alike.

## Loss and accuracy

$([[ -f $out/loss.svg ]] && echo "![Training loss](loss.svg)" || echo "(No model that learns the digits was asked for.)")

How to read it: above, curves that coincide are drawn with falling width, so that all stay visible. Below,
the distance from one device (1e-9 stands for zero): rounding, for a network without batch norm. With
batch norm every device normalises its own share of the batch, which is another function: the distance is
real there, for DP, for DDP and in PyTorch alike, and harmless. Between DP and DDP a rounding error
remains although their weights are the same bits: DP adds up the loss over the gathered batch, DDP over
each rank's part; only what is printed differs, not what is learnt.

$(curve_rows | markdown_table)

## One step, as a timeline

![Timeline](timeline.svg)

How to read it: one row is one thread, the step one of median length. Above, DP: the first row drives, and
what it does alone (everything but light and dark blue) keeps the devices' rows waiting.
Below, DDP: the ranks work side by side, and the communication rows show how much of the all-reduce runs
under the backward pass. \`trace-dp.json\` and \`trace-ddp.json\` open in ui.perfetto.dev.

## The same bits

$(equivalence_rows | markdown_table)

ULP is the distance counted in representable numbers: 0 means the same bits. Each row compares the reduced
gradients of steps ${dumped_steps// /, }, and after $equivalence_steps steps the weights, the optimizer's state and
the buffers.
\`cap\` is DDP's bucket size in MB. \`uneven\` has a batch that three devices cannot share evenly: there, and
wherever the devices are not 1, 2 or 4, every DDP rank divides its loss by the global batch
(\`--normalize global\`), since the average of the ranks' means would weight rows unequally or round.

Same bits are possible because every sum over devices runs in the order of the ranks and is scaled once.
Against one device the sums inside the matrix products are cut differently, so there a tolerance holds: in
each tensor the largest difference may be $(tolerance_at 0) (step 0) or $(tolerance_at 1) (later) of the largest magnitude. ULP
numbers are large there where elements cancel to nearly zero.
$(batch_norm_remark)

## The machine

$(machine_lines)

## The commands

\`\`\`
$(sed "s|$root/||g" "$out/commands.txt")
\`\`\`
END
}

batch_norm_remark() {
    local model skipped=
    for model in $models; do has_batch_norm "$model" && skipped+="${skipped:+, }$model"; done
    [[ -n $skipped ]] || return 0
    echo "Not compared with one device: $skipped, on more than one device. Batch norm normalises by the"
    echo "statistics of a device's own rows, so that N devices compute another function than one; DP and DDP on"
    echo "one device (\`dp:1\`, \`ddp:1\`) must match it to the bit."
}

print_summary() {
    echo
    speed_rows | terminal_table
    echo
    curve_rows | cut -f 1-6 | terminal_table
    echo
    equivalence_rows | terminal_table
    echo
    disturbed | sed 's/^/disturbed: /'
}

equivalence_verdict() {
    verdict_line
    [[ $equivalence_failures == 0 && $comparisons -gt 0 ]]
}
