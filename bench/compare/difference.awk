# difference.awk: DDP's step minus DP's, phase by phase, from summary.csv; with -v a=ddp -v b=mine the reader's own minus
# DDP's.
#
#   awk [-v a=STRATEGY -v b=STRATEGY] -f difference.awk summary.csv >difference.csv
#
# A row for each model, number of devices and phase: difference_ms is DDP's milliseconds less DP's, so that a
# negative one is time that DDP saves. The phase "step" is the whole step (medians). "rest" is the step minus
# the phases (means over the middle half of the steps), so that the phases add up to the step.
#
# shown is the row's name in sentences and figures: "all else" for differences below a hundredth of DP's step
# and for "rest" and "other".
#
# verdict, the same in all rows of a pair: saves, loses, ties (each one's median lies between the other's
# quartiles) or disturbed (no conclusion).
BEGIN {
    FS = OFS = ","
    if (a == "") {
        a = "dp"
        b = "ddp"
    }
    count = split("data scatter replicate forward gather loss backward reduce exposed optimizer other", \
        phase, " ")
}

FNR == 1 {
    for (i = 1; i <= NF; i++) at[$i] = i
    print "model,world_size,verdict,phase,shown," a "_ms," b "_ms,difference_ms"
    next
}

# The field in the column of that name.
function of(name) {
    if (name in at) return $at[name]
    print "error: " FILENAME " has no column " name > "/dev/stderr"
    failed = 1
    exit 1
}

(of("strategy") == a || of("strategy") == b) && of("timed") {
    run = of("model") SUBSEP of("world_size")
    s = of("strategy")
    if (s == a) order[++pairs] = run
    for (p = 1; p <= count; p++) spent[s, run, p] = of(phase[p] "_ms")
    p25[s, run] = of("step_ms_p25")
    p50[s, run] = of("step_ms_p50")
    p75[s, run] = of("step_ms_p75")
    disturbed[run] += of("disturbed")
}

function size(x) {
    return x < 0 ? -x : x
}

function inside(ms, s, run) {
    return p25[s, run] + 0 <= ms + 0 && ms + 0 <= p75[s, run] + 0
}

function verdict_on(run) {
    if (disturbed[run]) return "disturbed"
    if (inside(p50[a, run], b, run) && inside(p50[b, run], a, run)) return "ties"
    return p50[b, run] < p50[a, run] ? "saves" : "loses"
}

function row(what, first, second,    shown) {
    shown = what
    if (what != "step" && (what ~ /^(rest|other)$/ || size(second - first) < 0.01 * p50[a, run])) shown = "all else"
    print key[1], key[2], verdict, what, shown, sprintf("%.4f", first), sprintf("%.4f", second), \
        sprintf("%.4f", second - first)
}

END {
    if (failed) exit 1
    for (r = 1; r <= pairs; r++) {
        run = order[r]
        if (!((b, run) in p50)) continue
        split(run, key, SUBSEP)
        verdict = verdict_on(run)
        first = p50[a, run]
        second = p50[b, run]
        for (p = 1; p <= count; p++) {
            row(phase[p], spent[a, run, p], spent[b, run, p])
            first -= spent[a, run, p]
            second -= spent[b, run, p]
        }
        row("rest", first, second)
        row("step", p50[a, run], p50[b, run])
    }
}
