# overlap.awk: when buckets were ready and how long they moved, from the Chrome trace of a DDP run (an event a
# line), as medians over its steps but the first two:
#
#   awk -f trace.awk -f overlap.awk TRACE
#
# Prints a line "bucket,ready_ms,moving_ms" for each bucket of the first rank, and three lines more: "backward,MS,";
# "exposed,MS,", from the end of the last rank's backward pass to the end of the last all-reduce; and "skew,MS,", how
# far the ranks' ends of backward lie apart, which is no communication.
#
# Times count from the begin of the step's backward pass. Moving begins when the last rank has come.
BEGIN { OFS = "," }

/"ph": *"X"/ && /"pid": *0,/ && /"name": *"backward"/ {
    step = digits_of("number") + 0
    ts = digits_of("ts") + 0
    dur = digits_of("dur") + 0
    if (!(step in from) || ts < from[step]) from[step] = ts
    if (ts + dur > to[step]) to[step] = ts + dur
    if (step > steps) steps = step
}

/"ph": *"X"/ && /"name": *"backward"/ { # of a rank it comes in several pieces
    step = digits_of("number") + 0
    pid = digits_of("pid")
    if (pid + 1 > ranks) ranks = pid + 1
    if (digits_of("ts") + digits_of("dur") > ends[step, pid]) ends[step, pid] = digits_of("ts") + digits_of("dur")
}

/"ph": *"X"/ && /"bucket": *[0-9]/ {
    n = digits_of("number")
    ts = digits_of("ts") + 0
    if (ts > last[n]) last[n] = ts
    if (/"pid": *0,/) {
        finish[n] = ts + digits_of("dur")
        bucket[n] = digits_of("bucket")
    }
}

/"ph": *"i"/ && /bucket is ready/ && /"pid": *0,/ {
    instants++
    ready_at[instants] = digits_of("ts") + 0
    ready_bucket[instants] = digits_of("bucket")
}

# The step whose backward pass began last before that time.
function step_at(time,    s, found) {
    found = -1
    for (s in from) if (from[s] <= time && (found < 0 || from[s] > from[found])) found = s
    return found
}

function median(list,    v, n, i, j, x) {
    n = split(list, v, " ")
    for (i = 2; i <= n; i++) {
        x = v[i] + 0
        for (j = i; j > 1 && v[j - 1] > x; j--) v[j] = v[j - 1] + 0
        v[j] = x
    }
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}

END {
    if (steps < 2) {
        print "error: no steps in the trace" > "/dev/stderr"
        exit 1
    }
    for (i = 1; i <= instants; i++) {
        s = step_at(ready_at[i])
        if (s < 2) continue
        b = ready_bucket[i]
        ready[b] = ready[b] " " (ready_at[i] - from[s]) / 1000
        if (b + 1 > buckets) buckets = b + 1
    }
    for (n in finish) {
        if (step_at(finish[n]) < 2) continue
        moving[bucket[n]] = moving[bucket[n]] " " (finish[n] - last[n]) / 1000
        s = step_at(finish[n])
        if (finish[n] > reduced[s]) reduced[s] = finish[n]
    }
    for (s in from) {
        if (s < 2) continue
        backward = backward " " (to[s] - from[s]) / 1000
        early = late = ends[s, 0]
        for (r = 1; r < ranks; r++) {
            if (ends[s, r] > late) late = ends[s, r]
            if (ends[s, r] < early) early = ends[s, r]
        }
        shown = shown " " (reduced[s] > late ? reduced[s] - late : 0) / 1000
        apart = apart " " (late - early) / 1000
    }
    print "bucket,ready_ms,moving_ms"
    for (b = 0; b < buckets; b++) printf "%d,%.4f,%.4f\n", b, median(ready[b]), median(moving[b])
    printf "backward,%.4f,\nexposed,%.4f,\nskew,%.4f,\n", median(backward), median(shown), median(apart)
}
