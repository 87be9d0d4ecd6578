# exposed.awk TRACE: prints the overlap of rank 0's buckets with its backward, without the first step, as
# "SHARE BUCKETS AHEAD UNMARKED BROADCASTS".
#
#   SHARE       percent of the communication that is exposed (after the end of backward) on a link that would need half
#               of the backward's time for all buckets. Computed from each bucket's bytes and its start as a fraction of
#               its backward, so that other processes on the machine change it little.
#   BUCKETS     buckets of a step
#   AHEAD       percent of all buckets but the first that started before the previous bucket was complete
#   UNMARKED    all-reduces and reduce-scatters of gradients that are not marked as a bucket
#   BROADCASTS  after the first backward
BEGIN { CONVFMT = "%.3f" } # times are keys
function field(key, rest) {
    if (!match($0, "\"" key "\": *\"?[^\",}]*")) return "-"
    rest = substr($0, RSTART, RLENGTH)
    sub(/^[^:]*: *"?/, "", rest)
    return rest
}
field("pid") != 0 { next }
field("ph") == "s" { given[field("id")] = field("ts") + 0; next }
field("ph") == "f" { id_at[field("ts") + 0] = field("id"); next }
field("ph") == "X" {
    name = field("name")
    from = field("ts") + 0
    if (name == "backward" && field("tid") == 0) {
        backwards++
        begin[backwards] = from
        end[backwards] = from + field("dur")
    }
    if (name == "broadcast" && backwards > 0) broadcasts++
    if ((name != "all_reduce" && name != "reduce_scatter") || field("bytes") <= 100) next
    if (field("bucket") == "-") { unmarked++; next }
    n++
    at[n] = from
    arrives[n] = from + field("dur")
    bytes[n] = field("bytes")
}
END {
    for (b = 2; b <= backwards; b++) {
        length_of = end[b] - begin[b]
        next_begin = b < backwards ? begin[b + 1] : 1e18
        total = 0
        count = 0
        for (i = 1; i <= n; i++) {
            handed = at[i] in id_at ? given[id_at[at[i]]] : at[i]
            if (handed < begin[b] || handed >= next_begin) continue
            count++
            total += bytes[i]
            when[count] = (handed - begin[b]) / length_of
            size[count] = bytes[i]
            done[count] = arrives[i]
            ready[count] = handed
        }
        free = 0
        for (i = 1; i <= count; i++) {
            start = when[i] > free ? when[i] : free
            free = start + 0.5 * size[i] / total
            if (free > 1) left += free - (start > 1 ? start : 1)
            if (i > 1) { pairs++; ahead += ready[i] < done[i - 1] }
        }
        steps++
        buckets += count
    }
    share = steps && buckets ? 100 * left / (0.5 * steps) : 100
    printf "%.0f %.0f %.0f %d %d\n", share, steps ? buckets / steps : 0, pairs ? 100 * ahead / pairs : 0, unmarked + 0, broadcasts + 0
}
