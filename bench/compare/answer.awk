# answer.awk: the answer in sentences, one line for each model and number of devices of difference.csv.
#
#   awk -v where="On this machine" -v cores=2 -f answer.awk difference.csv
#
# The figures of a sentence add up: what is rounded away is part of "all else". The phases must add up to the step.
# Where they do not, nothing is said, and the status is 1.
BEGIN {
    FS = ","
    # The reason by the strategy whose phase is longer. Phases without one: both strategies compute as much.
    because["DP", "scatter"] = "DP's device 0 hands the inputs out"
    because["DP", "replicate"] = "DP sends the weights to every device in every step"
    because["DP", "gather"] = "DP brings the outputs back to device 0"
    because["DP", "loss"] = "DP's device 0 computes the loss alone"
    because["DP", "reduce"] = "DP adds all gradients up on device 0"
    because["DP", "data"] = "DP takes the batch for all devices, a rank its own part"
    because["DDP", "replicate"] = "DDP broadcasts rank 0's buffers (batch norm's statistics) before each forward, and waits there for a slower rank"
    because["DDP", "optimizer"] = "on DDP every rank runs an optimizer, on DP device 0 alone"
    because["DDP", "exposed"] = "all-reduce that DDP's backward pass did not hide, and waits for a slower rank"
}

FNR == 1 {
    for (i = 1; i <= NF; i++) at[$i] = i
    next
}

{
    pair = $at["model"] FS $at["world_size"]
    if (!(pair in verdict)) order[++pairs] = pair
    verdict[pair] = $at["verdict"]
    name = $at["shown"]
    difference[pair, name] += $at["difference_ms"]
    if (name == "step") {
        dp[pair] = $at["dp_ms"] + 0
        ddp[pair] = $at["ddp_ms"] + 0
    } else {
        if (name != "all else") names[pair, ++parts[pair]] = name
        sum[pair] += $at["difference_ms"]
    }
}

function size(x) {
    return x < 0 ? -x : x
}

function signed(x) {
    x = sprintf(digits, x) + 0
    return x == 0 ? sprintf(digits, 0) : (x > 0 ? "+" : "") sprintf(digits, x)
}

# The phases that matter, the largest first, and what is left of the step; sets `largest`, the phase that
# weighs most in the direction of the step.
function parts_of(pair,    text, left, i, best, name, used) {
    largest = ""
    left = sprintf(digits, difference[pair, "step"])
    while (1) {
        best = ""
        for (i = 1; i <= parts[pair]; i++) {
            name = names[pair, i]
            if (name in used) continue
            if (best == "" || size(difference[pair, name]) > size(difference[pair, best])) best = name
        }
        if (best == "") break
        used[best] = 1
        if (largest == "" && difference[pair, best] * difference[pair, "step"] > 0) largest = best
        text = text best " " signed(difference[pair, best]) ", "
        left -= sprintf(digits, difference[pair, best])
    }
    return text "all else " signed(left)
}

function sentence(pair,    head, change, share, text, key, longer) {
    split(pair, key, FS)
    head = key[1] ", " key[2] " devices: "
    if (verdict[pair] == "disturbed")
        return head where ", disturbed by other work; no conclusion."
    digits = dp[pair] >= 100 ? "%.1f" : "%.2f"
    change = difference[pair, "step"]
    share = sprintf("%.1f %%", dp[pair] > 0 ? 100 * size(change) / dp[pair] : 0)
    text = parts_of(pair)
    if (verdict[pair] == "ties")
        return head where ", DP and DDP tie: their steps take " sprintf(digits, dp[pair]) " and " \
            sprintf(digits, ddp[pair]) " ms, each median within the other's quartiles. What DDP's phases take more or less, in ms: " \
            text "."
    text = head where ", DDP " (change < 0 ? "saves " : "takes ") sprintf(digits, size(change)) \
        (change < 0 ? " ms of DP's " : " ms more than DP's ") sprintf(digits, dp[pair]) " per step (" share "): " \
        text "."
    longer = difference[pair, largest] < 0 ? "DP" : "DDP"
    if ((longer, largest) in because) text = text " The largest part is " largest ": " because[longer, largest] "."
    if (cores && key[2] > cores)
        text = text " With " key[2] " devices on " cores " " units " they take turns, and each phase holds waits."
    return text
}

END {
    for (p = 1; p <= pairs; p++) {
        pair = order[p]
        if (size(sum[pair] - difference[pair, "step"]) > 2e-3) {
            print "error: the phases of " pair " do not add up to its step" > "/dev/stderr"
            exit 1
        }
        print sentence(pair)
    }
}
