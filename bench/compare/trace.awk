# trace.awk: functions that read one event of a Chrome trace (an event a line), for the programs that look at
# traces: awk -f bench/compare/trace.awk -f bench/compare/timeline.awk TRACE

# The text under this key of the event; "" if it has none.
function text_of(key,    rest) {
    if (!match($0, "\"" key "\": *\"[^\"]*\"")) return ""
    rest = substr($0, RSTART, RLENGTH)
    sub(/^"[^"]*": *"/, "", rest)
    return substr(rest, 1, length(rest) - 1)
}

# The number under this key, as it is written: some awks round large ones when they are used as names. -1 if the
# event has none.
function digits_of(key,    rest) {
    if (!match($0, "\"" key "\": *[-0-9.e+]+")) return -1
    rest = substr($0, RSTART, RLENGTH)
    sub(/^"[^"]*": */, "", rest)
    return rest
}

function number_of(key) {
    return digits_of(key) + 0
}
