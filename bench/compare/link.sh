# link.sh: the same comparison over a slower network than the memory of this machine, emulated by --link, and
# what overlap is worth there. Sourced by compare.sh after measure.sh. CPU devices only.
#
# The names of its runs:
#   link-MODEL-STRATEGY-2-REPEAT    a step of DP or DDP over the link
#   growth-MODEL-dp-WORLD-REPEAT    DP on more devices, over a link so slow that little else counts
#   buckets-CAP-ddp-2-REPEAT        DDP with buckets of CAP MB
#   overlap-WHERE-HOW               a traced run; WHERE is memory, fast or slow, HOW is overlapped or serial
# The last two kinds train the deep network of the timeline.

# slow_link, the link of all but the growth and the fast one, is what --link says.
fast_link=paper-rdma
growth_link=1,20
link_text= fast_text= # what the programs call the slow and the fast one (name_links)
bucket_caps="0 0.1 0.5 1 2 4 25"
deep="512,512,512,512,512,512,512,512"

has_link() {
    [[ $kind == cpu && " $worlds " == *" 2 "* ]]
}

# name_links: sets slow_link, link_text and fast_text ("an emulated link of 10 Gbit/s and 20 us"). Ends the script, as
# check_devices does, if the programs know no such link.
name_links() {
    [[ -z $slow_link ]] || has_link || fail_usage "--link is for CPU devices, and for a --world that has 2"
    slow_link=${slow_link:-10gbe}
    has_link || return 0
    probe_folder=$(mktemp -d)
    must_run_a_step train_dp --devices 2 --link "$slow_link"
    link_text=$(json link "$probe_folder/config.json")
    must_run_a_step train_dp --devices 2 --link $fast_link
    fast_text=$(json link "$probe_folder/config.json")
    rm -rf "$probe_folder"
}

# link_run NAME: makes one of these runs. What it trains is read from its name.
link_run() {
    local part what strategy world
    local -a options=(--model mlp --hidden $deep --data digits --global-batch 300 --no-eval)
    IFS=- read -r part what strategy world _ <<<"$1"
    case $1 in
    link-*)
        # shellcheck disable=SC2046 # the options are words
        train "$1" "$strategy" 2 --model "$what" --data "$(data_of "$what")" $(speed_options "$what") \
            --link "$slow_link" --steps $((measured_steps / 2)) --no-eval --log-every 1
        ;;
    growth-*)
        # shellcheck disable=SC2046 # the options are words
        train "$1" dp "$world" --model "$what" --data "$(data_of "$what")" $(speed_options "$what") \
            --link $growth_link --steps $((warm_up + 6)) --no-eval --log-every 1
        ;;
    buckets-*)
        train "$1" ddp 2 "${options[@]}" --link "$slow_link" --bucket-cap-mb "$what" \
            --steps $((measured_steps / 2)) --log-every 1
        ;;
    overlap-*)
        [[ $what != fast ]] || options+=(--link $fast_link)
        [[ $what != slow ]] || options+=(--link "$slow_link")
        [[ $strategy == overlapped ]] || options+=(--no-overlap)
        train "$1" ddp 2 "${options[@]}" --bucket-cap-mb 1 --steps 20 --trace "$out/trace-$what-$strategy.json"
        ;;
    esac </dev/null
}

measure_link() {
    local repeat cap strategy where world
    has_link || return 0
    for ((repeat = 1; repeat <= (repeats + 1) / 2; repeat++)); do
        begin_section "slow link: repeat $repeat of $(((repeats + 1) / 2))"
        for strategy in dp ddp; do measure_run "link-${models%% *}-$strategy-2-$repeat"; done
        for world in $(timed_worlds); do measure_run "growth-${models%% *}-dp-$world-$repeat"; done
        for cap in $bucket_caps; do measure_run "buckets-$cap-ddp-2-$repeat"; done
    done
    for where in memory fast slow; do
        measure_run overlap-$where-serial
        measure_run overlap-$where-overlapped
    done
}

# with_link TEXT: a table of CSV, with a column more, in which every row says over which emulated link it was made.
with_link() {
    awk -v link="${1#an emulated link of }" '{ print $0 "," (NR == 1 ? "emulated_link" : link) }'
}

# summary-link.csv, difference-link.csv, growth.csv and plots/buckets.csv.
summarize_link() {
    local strategy cap header world
    has_link || return 0
    header=$(awk -v header=1 -f bench/compare/summarize.awk)
    {
        echo "$header"
        for strategy in dp ddp; do summary_row "${models%% *}" $strategy 2 link; done
    } | with_link "$link_text" >"$out/summary-link.csv"
    awk -f bench/compare/difference.awk "$out/summary-link.csv" >"$out/difference-link.csv"
    {
        echo "$header"
        for world in $(timed_worlds); do summary_row "${models%% *}" dp "$world" growth; done
    } | with_link "${growth_link/,/ Gbit\/s and } us" >"$out/growth.csv"
    {
        echo "$header"
        for cap in $bucket_caps; do summary_row "$cap" ddp 2 buckets; done
    } >"$out/plots/buckets-runs.csv"
    csv 'BEGIN { print "position,cap_mb,step_ms_p25,step_ms_p50,step_ms_p75,disturbed" }
        { printf "%d,%s,%s,%s,%s,%d\n", ++n, of("model"), of("step_ms_p25"), of("step_ms_p50"), of("step_ms_p75"), \
            of("disturbed") }' "$out/plots/buckets-runs.csv" >"$out/plots/buckets.csv"
}

caption_buckets() {
    csv '
        function overlap(a, b) { return lower[a] <= upper[b] && lower[b] <= upper[a] } # their quartiles
        of("disturbed") + 0 { next }
        { cap[++n] = of("cap_mb"); ms[n] = of("step_ms_p50") + 0; lower[n] = of("step_ms_p25"); upper[n] = of("step_ms_p75")
          if (n == 1 || ms[n] < ms[best]) best = n }
        END {
            if (!n) { print "Disturbed."; exit }
            printf "Over %s a step is shortest with buckets of %s MB, %.2f ms", link, cap[best], ms[best]
            if (best > 1) printf "; with %s MB it takes %.0f %% more", cap[1], 100 * (ms[1] / ms[best] - 1)
            if (best < n) printf "; with %s MB it takes %.0f %% more", cap[n], 100 * (ms[n] / ms[best] - 1)
            if (best > 1 && best < n && !overlap(1, best) && !overlap(n, best))
                print ". The curve is a U: both ends lie above its lowest point, with quartiles apart."
            else
                print ". The curve is no U: not both ends lie above its lowest point with quartiles apart."
        }' link="$link_text" "$out/plots/buckets.csv"
}

# Every device more costs DP the same bytes through device 0's link: does its step grow as they say?
growth_text() {
    csv '
        of("disturbed") + 0 { disturbed = 1 }
        { n++; world[n] = of("world_size"); ms[n] = of("step_ms_p50"); bytes[n] = of("moved_bytes_per_step") }
        END {
            if (n < 2) exit
            if (disturbed) { print "How DP grows with the number of devices: disturbed."; exit }
            more = ms[n] - ms[1]
            predicted = (bytes[n] - bytes[1]) * 8 / (gbit * 1e6)
            printf "Over an emulated link of %g Gbit/s, DP takes %.1f ms per step on %d devices and %.1f on %d: %.1f ms more. ", \
                gbit, ms[1], world[1], ms[n], world[n], more
            printf "Device 0 moves %.2f MB more, one device after the other, which takes %.1f ms: the step grows by %.0f %% of that, %s.\n", \
                (bytes[n] - bytes[1]) / 1e6, predicted, 100 * more / predicted, \
                (more >= 0.9 * predicted && more <= 1.1 * predicted ? "so the bytes predict it within 10 %" : "so the bytes do not predict it within 10 %")
        }' gbit=${growth_link%,*} "$out/growth.csv"
}

# overlap_row LABEL WHERE: a row of how much communication could be hidden and how much overlap did hide, where WHERE is
# memory, fast or slow. The serial run tells each bucket's time to move, and the length of the backward pass when nothing else
# runs. The overlapped run tells when the buckets were ready, as a share of its backward pass, and what was exposed.
overlap_row() {
    local files=$out/plots/overlap-$2
    if grep -q "^overlap-$2-" "$out/disturbed.txt"; then
        tabbed "$1" - - - disturbed -
        return
    fi
    csv '
        file == 1 && of("bucket") ~ /^[0-9]/ { move[of("bucket")] = of("moving_ms") + 0; all += of("moving_ms") }
        file == 1 && of("bucket") == "backward" { alone = of("ready_ms") + 0 }
        file == 2 && of("bucket") ~ /^[0-9]/ { ready[of("bucket")] = of("ready_ms") + 0; n++ }
        file == 2 && of("bucket") == "backward" { beside = of("ready_ms") + 0 }
        file == 2 && of("bucket") == "exposed" { exposed = of("ready_ms") + 0 }
        END {
            for (b = 0; b < n; b++) { # each bucket moves when it is ready and the one before has moved
                start = ready[b] * alone / beside
                if (start < done) start = done
                done = start + move[b]
            }
            least = done > alone ? done - alone : 0
            hidden = all > exposed ? all - exposed : 0
            if (hidden > all - least) hidden = all - least # what is measured twice differs a little
            print label, sprintf("%.2f", all), sprintf("%.2f", all - least), sprintf("%.2f", hidden), \
                sprintf("%.0f %%", all > least ? 100 * hidden / (all - least) : 0), \
                sprintf("%.2f", beside / alone)
        }' label="$1" "$files-serial.csv" "$files-overlapped.csv"
}

# plots/overlap-RUN.csv, from the traces.
lay_out_overlap() {
    local run
    has_link || return 0
    for run in {memory,fast,slow}-{serial,overlapped}; do
        awk -f bench/compare/trace.awk -f bench/compare/overlap.awk "$out/trace-$run.json" >"$out/plots/overlap-$run.csv"
    done
}

overlap_rows() {
    tabbed network "all-reduces ms" "can hide ms" "hidden ms" "hidden of that" "backward inflated"
    overlap_row "shared memory" memory
    overlap_row "${fast_text#an }" fast
    overlap_row "${link_text#an }" slow
}

# Does overlap hide what it is meant to, 90 % of what could be hidden? A sentence for each network.
overlap_sentences() {
    overlap_rows | awk -F'\t' '
        NR == 1 { next }
        { where = NR == 2 ? "In " $1 : "Over an " $1 }
        $5 == "disturbed" { print "- " where ": disturbed by other work; no conclusion."; next }
        { printf "- %s overlap hides %s of the %s ms that can be hidden, %s. The aim of 90 %% is %sreached. ", \
            where, $4, $3, $5, ($5 + 0 >= 90 ? "" : "not ")
          printf "Meanwhile the backward pass takes %s times as long as alone.\n", $6 }'
}

# What the model in bench/model says of other numbers of devices and other networks, from this machine's profile of
# the deep network: a part of the report.
write_what_if() {
    has_link || return 0
    "$bin/bench_profile" --hidden $deep --rows 150 --rounds 10 --save "$out/profile.json" >"$out/profile.txt" 9<&-
    bench/model/section.sh "$out/profile.json" "$bin" >"$out/whatif.html"
}

# ---- why is it slow? ----------------------------------------------------------------------------------------

# A row for each cause, with this machine's figure for the first model, from the files that the report shows.
cause_rows() {
    local world
    world=$(answer_world)
    tabbed cause "what was measured (${models%% *}, $world devices)" here
    csv '
        of("disturbed") + 0 && (of("strategy") == "single" || of("world_size") == world) { disturbed = 1 }
        of("strategy") != "single" && of("world_size") != world { next }
        { s = of("strategy")
          compute[s] = of("forward_ms") + of("loss_ms") + of("backward_ms")
          moving[s] = of("scatter_ms") + of("replicate_ms") + of("gather_ms") + of("reduce_ms") + of("exposed_ms")
          host[s] = of("data_ms") + of("other_ms"); update[s] = of("optimizer_ms"); step[s] = of("step_ms_p50")
          moved[s] = of("moved_bytes_per_step") / 1e6; busy[s] = of("communication_ms") }
        function row(cause, what, text) { print cause, what, text }
        END {
            if (disturbed) { row("all", "the runs of this model", "disturbed"); exit }
            ideal = compute["single"] / world
            row("compute", "forward, loss and backward: one device'\''s, shared by " world, sprintf("%.2f ms", ideal))
            row("compute", "the same of DP, and its ratio to that", sprintf("%.2f ms, %.2f", compute["dp"], compute["dp"] / ideal))
            row("compute", "the same of DDP, and its ratio to that", sprintf("%.2f ms, %.2f", compute["ddp"], compute["ddp"] / ideal))
            row("exposed communication", "DP: scatter, replicate, gather, reduce", sprintf("%.2f ms", moving["dp"]))
            row("exposed communication", "DDP: what backward did not hide", sprintf("%.2f ms", moving["ddp"]))
            row("host", "taking the batch, and between the phases: of DP, of DDP", sprintf("%.2f, %.2f ms", host["dp"], host["ddp"]))
            row("replicated work", "the optimizer, as long on N devices as on one: of DP, of DDP", \
                sprintf("%.2f, %.2f ms", update["dp"], update["ddp"]))
            row("memory bandwidth", "bytes that DDP'\''s all-reduces move, and how fast", busy["ddp"] > 0 ? \
                sprintf("%.2f MB, %.1f GB/s", moved["ddp"], moved["ddp"] / busy["ddp"]) : "-")
        }' world="$world" "$out/plots/${models%% *}.csv"
    [[ $kind != cpu ]] || tabbed "memory bandwidth" "a pass through memory by all cores (the probe)" \
        "$(usual_probe 0 | awk -F'\t' '{ printf "%.1f GB/s", $2 }')"
    ! has_link || grep -qx overlap-memory-overlapped "$out/disturbed.txt" || csv 'of("bucket") == "skew" {
        print "imbalance", "how far apart two ranks end their backward passes (median; " traced ")",
            sprintf("%.2f ms", of("ready_ms")) }' traced="$timeline_model" \
        "$out/plots/overlap-memory-overlapped.csv"
}
