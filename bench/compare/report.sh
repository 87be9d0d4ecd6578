# report.sh: report.md and report.html. Sourced by compare.sh after tables.sh.

machine_lines() {
    local kinds=()
    [[ $kind == cpu ]] || kinds=("GPUs: $gpus for this run")
    machine_facts "${kinds[@]}" \
        "$([[ $kind == cpu ]] && echo BLAS || echo GPU): $(json blas "$(a_record)")" "Command: \`$asked\`"
}

write_report() {
    report_text >"$out/report.md"
    folder="$out" awk -v title="DataParallel and DistributedDataParallel, compared" \
        -v style=bench/compare/page.css -f bench/compare/markdown.awk "$out/report.md" >"$out/report.html"
}

# The rows some of whose runs were disturbed and dropped: "mlp, DP, 2 devices: 4 of 5 kept; ..."; nothing if none were.
dropped_runs() {
    csv 'of("timed") && of("repeats") < made {
            printf "%s%s, %s, %d device%s: %d of %d kept", between, of("model"), toupper(of("strategy")),
                of("world_size"), of("world_size") == 1 ? "" : "s", of("repeats"), made
            between = "; "
        }' made="$repeats" "$out/summary.csv"
}

# How many runs the rows are made of.
runs_text() {
    local dropped
    dropped=$(dropped_runs)
    echo "Every row: $repeats run$([[ $repeats == 1 ]] || echo s)${dropped:+, less the disturbed ones ($dropped)},"
}

# What a reader should know before believing the speed-ups.
speed_remarks() {
    local unsteady dropped
    unsteady=$(disturbed | paste -sd ';' -)
    dropped=$(dropped_runs)
    [[ $kind != cpu ]] || cpu_remarks
    [[ $kind != cuda ]] || cat <<END
- A step's time on a GPU includes the wait for it. The phases below are of runs that wait at the end
  of each phase: without that, the host is in the next phase while the GPU is in this one.
END
    if [[ -n $unsteady ]]; then
        echo "- **Disturbed.** Something else used the machine during these, and they take part in no"
        echo "  conclusion: ${unsteady//;/, }."
    fi
    [[ -z $dropped ]] || echo "- Something else used the machine during some runs, which were dropped: $dropped."
    [[ -n $unsteady$dropped ]] || echo "- Nothing disturbed the machine noticeably."
    [[ $kind != cpu ]] || probe_remark
}

# How disturbances are noticed, and what the probes found.
probe_remark() {
    cat <<END
- Before and after each run a probe measured what all cores reach together. Most found about $(usual_probe 0 |
        awk -F'\t' '{ printf "%.0f GFLOP/s in products of matrices and %.1f GB/s in memory", $1, $2 }').
  A run is disturbed if the probe before or after it is below $(awk "BEGIN { print 100 * $undisturbed_share }") % or above $(awk "BEGIN { print 100 / $undisturbed_share }") % of that.
  For up to $patience seconds such runs were made once more where they were more than half of a row. A row is disturbed
  if more than half of its runs stayed so, or if the medians of its runs lie more than 25 % apart.
END
}

cpu_remarks() {
    [[ ${worlds##* } -le $cores ]] || cat <<END
- Devices here are threads or processes on $cores cores. Beyond $cores devices nothing can get
  faster: they take turns, and pay for moving data on top. The dotted line is that limit.
END
    cat <<END
- DDP hides communication behind the backward pass. What it hides is waiting; the bytes still have
  to be moved: on GPUs by the copy engines, here a communication thread. With as many devices as cores that has no
  core of its own: while it moves data the backward pass stands still, and takes as much longer.
END
}

# The answer, and the figure of it.
answer_text() {
    cat <<END
## Which is faster here, and why?

Each line compares the two steps phase by phase: + is what DDP takes more, - what it takes less. With
*replicate* (weights out) and *reduce* (gradients back) DP's device 0 serves all devices in every step,
while they wait. DDP has *exposed* for them: what it still waits for gradients when the backward pass is over.

$(answer_lines | sed 's/^/- /')

$(figure difference "What DDP takes more or less than DP, phase by phase")
$(command -v gnuplot >/dev/null || printf '\nThere was no gnuplot, so that this report has its numbers without figures.\n')

END
}

# What other commands found, whose results lie beside these: of DIR, those in DIR-ladder, DIR-peers and so on.
sections() {
    local section
    for section in "$out"-*/section.html; do
        [[ ! -s $section ]] || printf '[section](../%s)\n\n' "${section#"$(dirname "$out")/"}"
    done
}

loss_figure() {
    if [[ -n $(curve_models) ]]; then
        figure loss "Training loss"
    else
        echo "(No model that learns the digits was asked for.)"
    fi
}

# "mlp 300, convnet 300"
global_batches() {
    csv 'of("strategy") == "single" {
            printf "%s%s %d", separator, of("model"), of("global_batch")
            separator = ", "
        }' "$out/summary.csv"
}

batch_norm_remark() {
    local model skipped=
    for model in $models; do has_batch_norm "$model" && skipped+="${skipped:+, }$model"; done
    [[ -n $skipped ]] || return 0
    cat <<END

Not compared with one device: $skipped, on more than one device. Batch norm normalises by the
statistics of a device's own rows, so that N devices compute another function than one; DP and
DDP on one device (\`dp:1\`, \`ddp:1\`) must match it$([[ $kind != cpu ]] || echo " to the bit").
END
}

speed_text() {
    cat <<END
## Speed

$(figure throughput "Training speed")

How to read it: to the right the same batch is shared by more devices; perfect scaling would climb
along the dashed line. The gap below it is what parallelism costs: copying, waiting, and whatever
one device does alone. Where DDP runs above DP, look for the reason in the next figure.

$(speed_remarks)

## Where a step goes

$(figure phases "Phases of a step")

How to read it: a bar is one step as the thread that drives it sees it: on DP the one process, on
DDP rank 0. Blue and green is computing, warm colours move data. With N devices the blue parts
should shrink to one Nth. DP pays four times per step: *scatter* (inputs out), *replicate*
(weights out), *gather* (outputs back) and *reduce* (gradients back); its loss and optimizer run
on device 0 alone while the others wait. DDP has only *exposed*, the part of the all-reduce that
the backward pass did not hide, and, if the network has buffers (batch norm), *replicate*, their
broadcast; in both a rank also waits for a slower one.

$(communication_rows | markdown_table)

All-reduces go on beside these phases: the first column is how long they took in all, waits for
slower ranks included, and what is not *exposed* was hidden behind the backward pass.

## Memory

$(figure memory "Peak memory")

How to read it: the tallest bar decides which network fits. Everywhere the activations shrink with
a device's share of the batch; what is kept per weight does not. DP keeps the reduced gradients,
the optimizer's state and the gathered outputs on device 0 alone, which shows where weights
outweigh activations (mlp); the others hold copies of the weights and their gradients. In DDP
every device holds weights, gradients and optimizer state, so that all bars are alike.
END
}

zero_text() {
    local lines
    lines=$(zero_lines)
    [[ -n $lines ]] || return 0
    cat <<END
## The optimizer, divided

In DDP every rank keeps the same optimizer state and computes the same step. As \`zero1\` (\`--zero-optimizer\`) each
keeps and steps a part, 8 / N bytes of AdamW's state for each parameter instead of 8, and takes the new weights of the others.

${lines//$'\n'/$'\n\n'}
END
}

timeline_text() {
    cat <<END
## One step, as a timeline

$(figure timeline "Timeline")

How to read it: one row is one thread, the step the shortest of 18, which was disturbed least. Above, DP: the
first row drives, and what it does alone (everything but light and dark blue) keeps the devices' rows
waiting. Below, DDP: the ranks work side by side, and the communication rows show how much of the
all-reduce runs under the backward pass, each arrow from the moment a bucket's last gradient was
ready to the all-reduce of that bucket (the number in it). Hatched, a rank that is early waits for the other.
\`trace-dp.json\` and \`trace-ddp.json\` open in ui.perfetto.dev; \`player.html\`, beside this report, plays both steps.
END
}

bits_text() {
    cat <<END
Same bits are possible because every sum over devices runs in the order of the ranks and is scaled
once. Against one device the sums inside the matrix products are cut differently, so there a
tolerance holds: in each tensor the largest difference may be $(tolerance_at mlp 0) (step 0) or
$(tolerance_at mlp 1) (later) of the largest magnitude. ULP numbers are large there where elements
cancel to nearly zero.
END
}

tolerance_text() {
    cat <<END
On GPUs a tolerance holds: in each tensor the largest difference may be $(tolerance_at mlp 0) (step 0) or
$(tolerance_at mlp 1) (later) of the largest magnitude. NCCL chooses how it adds by the size and the place
of what it adds, so that DP and DDP, and DDP with other buckets, round differently; and the products of
a device's share are cut differently than those of the whole batch. For resnet20 it is $(tolerance_at resnet20 0),
at a learning rate of 1e-5: where a rounding error carries an input of a relu across zero, that moves
gradients by per cents, and every further step amplifies it. (Sums of 16 or 10 bits are not compared
here: all of this is in float32 without TF32.) \`graph\` replays captured steps. ULP numbers are large
where elements cancel to nearly zero.
END
}

slow_text() {
    cat <<END
## Why is it slow?

$(cause_rows | markdown_table)

With N devices computing should take one Nth of one device's time. It takes more where N products of a smaller
batch are less efficient, where cores share memory bandwidth, or where communication takes a core away.
$(! has_link || overlap_text)

END
}

overlap_text() {
    cat <<END

### Is communication hidden?

$(overlap_rows | markdown_table)

$(overlap_sentences)

Measured with $timeline_model on 2 devices. Bucket k is ready r(k) after the backward pass began and takes c(k) to
move, so that it has moved at e(k) = max(r(k), e(k - 1)) + c(k). If backward takes B, at least E = max(0, e(last) - B)
stays exposed: overlap can hide the sum of all c(k) less E. What it did hide is that sum less what was exposed, from the end of the
slower rank's backward pass to the end of the last bucket, and at most what could be. c(k)
and B are from a run with --no-overlap, r(k) from one with overlap, as a share of its backward pass, which is as many
times longer as the last column says: there communication and computing compete.

### Does DP grow as its bytes say?

$(growth_text)

$(figure buckets "The time of DDP's step against the size of its buckets")

How to read it: to the left every gradient travels alone and pays the link's latency; to the right one bucket is
full only when backward is nearly over, and nothing can be hidden. Times are over $link_text.
END
}

# Why rows have no times.
untimed_remark() {
    [[ -z $(why_untimed) ]] || printf '\n\n**%s**' "$(why_untimed)"
}

report_text() {
    cat <<END
# DataParallel and DistributedDataParallel, compared

The same networks, the same weights to begin with, the same batches: trained by one device, by
DataParallel (DP: one process, one thread per device) and by DistributedDataParallel (DDP: one
process per device). **$(verdict_line)**

$([[ -z $(timed_worlds) ]] || answer_text)

## The figures

$(speed_rows | markdown_table)

$(runs_text)
interleaved with those of the other rows, all their steps but the first $warm_up of each; medians, and quartiles where a range stands. The global batch is the same in all
rows of a model: $(global_batches) samples.$(untimed_remark)

$([[ -z $(timed_worlds) ]] || speed_text)

$(zero_text)

## Loss and accuracy

$(loss_figure)

How to read it: to the left, curves that coincide are drawn with falling width, so that all stay
visible. To the right, the distance from one device (1e-9 stands for zero): rounding, for a network
without batch norm. With batch norm every device normalises its own share of the batch, which is
another function: the distance is real there, for DP, for DDP and in PyTorch alike, and harmless.
Between DP and DDP a rounding error remains although their weights are the same bits: DP adds up
the loss over the gathered batch, DDP over each rank's part; only what is printed differs, not
what is learnt.

$(curve_rows | markdown_table)

$(! is_timed 2 || slow_text)

$(! is_timed 2 || timeline_text)

## The same $([[ $kind == cpu ]] && echo bits || echo numbers)

$(equivalence_rows | markdown_table)

ULP is the distance counted in representable numbers: 0 means the same bits. Each row compares the
reduced gradients of steps ${dumped_steps// /, }, and after $equivalence_steps steps the weights,
the optimizer's state and the buffers. \`cap\` is DDP's bucket size in MB. \`uneven\` has a batch
that three devices cannot share evenly: there, and wherever the devices are not 1, 2 or 4, every
DDP rank divides its loss by the global batch (\`--normalize global\`), since the average of the
ranks' means would weight rows unequally or round.

$([[ $kind == cpu ]] && bits_text || tolerance_text)
$(batch_norm_remark)

$(sections)

$([[ ! -s $out/whatif.html ]] || echo '[section](whatif.html)')

## The machine

$(machine_lines)

## The commands

<details><summary>$(wc -l <"$out/commands.txt") runs, in their order</summary>

\`\`\`
$(cat "$out/commands.txt")
\`\`\`

</details>
END
}
