# timeline.awk: the spans of the shortest step of a run, from its Chrome trace (one event per line), as
# rows "row,begin_ms,end_ms,phase,span,bucket" with times since that step began.
#
#   folder=DIR awk -v row=0 -v label=DP -f trace.awk -f timeline.awk TRACE
#
# row: the last row of the figure already in use. Tracks are appended to DIR/tracks.csv as "row,label",
# and arrows, from where a bucket was ready to its all-reduce, to DIR/arrows.csv as
# "from_row,from_ms,to_row,to_ms". A span that belongs to no bucket has the bucket -1.
# The shortest step, from the first rank's begin to the last one's end and without the first two, was
# disturbed least; all processes read the same clock. Spans that carry no phase's name are communication:
# "waiting" until the last rank has begun the same collective, then "moving". The longer spans of a track
# come first, so that shorter ones are drawn over them.
BEGIN {
    OFMT = "%.9g" # nanoseconds: else spans of less than a microsecond would have no length
    OFS = ","
    split("data scatter replicate forward gather loss backward reduce exposed optimizer other", \
        names, " ")
    for (i in names) is_phase[names[i]] = 1
    tracks = ENVIRON["folder"] "/tracks.csv"
    arrows = ENVIRON["folder"] "/arrows.csv"
}

/"ph": *"M"/ && /"thread_name"/ {
    name_of_thread = $0
    sub(/.*"args"/, "", name_of_thread)
    pid = number_of("pid")
    tid = number_of("tid")
    $0 = name_of_thread
    track_name[pid, tid] = text_of("name")
    order[++count] = pid SUBSEP tid
    next
}

/"ph": *"X"/ {
    n++
    name[n] = text_of("name")
    track[n] = number_of("pid") SUBSEP number_of("tid")
    begin[n] = number_of("ts")
    finish[n] = begin[n] + number_of("dur")
    number[n] = number_of("number")
    bucket[n] = number_of("bucket")
    if (name[n] == "optimizer") main[track[n]] = 1
    collective[n] = name[n] SUBSEP digits_of("number")
    if (begin[n] > last_begin[collective[n]]) last_begin[collective[n]] = begin[n]
}

# The begin and the end of an arrow.
/"ph": *"s"/ {
    from_track[digits_of("id")] = number_of("pid") SUBSEP number_of("tid")
    from_time[digits_of("id")] = number_of("ts")
}

/"ph": *"f"/ {
    to_track[digits_of("id")] = number_of("pid") SUBSEP number_of("tid")
    to_time[digits_of("id")] = number_of("ts")
}

# Sets from and to: begin and end of the shortest step.
function choose_step(    i, step, best) {
    for (i = 1; i <= n; i++) {
        step = number[i]
        if (!(track[i] in main) || step < 2) continue
        if (!(step in first) || begin[i] < first[step]) first[step] = begin[i]
        if (finish[i] > final[step]) final[step] = finish[i]
    }
    for (step in first)
        if (best == "" || final[step] - first[step] < final[best] - first[best]) best = step
    from = first[best]
    to = final[best]
}

# A span, as far as it lies in the step.
function span(a, b, phase, i) {
    if (b <= from || a >= to || b <= a) return
    print row, ((a < from ? from : a) - from) / 1000, ((b > to ? to : b) - from) / 1000, phase, name[i], bucket[i]
}

END {
    for (t in main) mains++
    if (!mains) {
        print "error: no optimizer step in the trace" > "/dev/stderr"
        exit 1
    }
    choose_step()
    for (t = 1; t <= count; t++) {
        used = 0
        for (i = 1; i <= n; i++) {
            if (track[i] != order[t] || finish[i] <= from || begin[i] >= to) continue
            if (!used++) row++
            if (name[i] in is_phase) {
                span(begin[i], finish[i], name[i], i)
                continue
            }
            come = last_begin[collective[i]]
            if (come > finish[i]) come = finish[i]
            span(begin[i], come, "waiting", i)
            span(come, finish[i], "moving", i)
        }
        row_of[order[t]] = row
        if (!used) continue
        split(order[t], ids, SUBSEP)
        rank = label == "DDP" ? "rank " ids[1] " " : "DP "
        print row, rank track_name[ids[1], ids[2]] >> tracks
    }
    for (id in to_time)
        if (from_time[id] >= from && to_time[id] < to)
            print row_of[from_track[id]], (from_time[id] - from) / 1000, \
                row_of[to_track[id]], (to_time[id] - from) / 1000 >> arrows
}
