# link.sh: the same comparison over an emulated network (--link) slower than this machine's memory, and the time that
# overlap saves there. Sourced by compare.sh after measure.sh. CPU devices only.
# The names of its runs:
#   link-MODEL-STRATEGY-2-REPEAT    a step of DP or DDP over the link
#   growth-MODEL-STRATEGY-WORLD-REPEAT  the same on more devices, over a link so slow that little else counts
#   buckets-CAP-ddp-2-REPEAT        DDP with buckets of CAP MB
#   overlap-WHERE-HOW               a traced run; WHERE is memory, fast or slow, HOW is overlapped or serial
#   timeline-[link-]STRATEGY        a traced run, through memory or over the link
# The last three kinds train the deep network of the timeline.

slow_link= # --link of all runs but the growth and the fast ones
fast_link=paper-rdma
growth_link=1,20
link_text= fast_text= # descriptions of the slow and the fast link (name_links)
bucket_caps="0 0.1 0.5 1 2 4 25"
deep="512,512,512,512,512,512,512,512"

has_link() {
    [[ $kind == cpu && " $worlds " == *" 2 "* ]]
}

# name_links: sets slow_link, link_text and fast_text ("an emulated link of 10 Gbit/s and 20 us"). Ends the script, as
# check_devices does, if the programs know no such link.
name_links() {
    [[ -z $link ]] || has_link || fail_usage "--link is for CPU devices, and for a --world that has 2"
    slow_link=${link:-10gbe}
    has_link || return 0
    probe_folder=$(mktemp -d)
    must_run_a_step train_dp --devices 2 --link "$slow_link"
    link_text=$(json link "$probe_folder/config.json")
    must_run_a_step train_dp --devices 2 --link $fast_link
    fast_text=$(json link "$probe_folder/config.json")
    rm -rf "$probe_folder"
}

# link_run NAME: makes one of these runs; its name determines its options.
link_run() {
    local part what strategy world
    local -a options=(--model mlp --hidden $deep --data digits --global-batch 300 --no-eval)
    IFS=- read -r part what strategy world _ <<<"$1"
    case $1 in
    link-*) speed_run "$1" "$strategy" 2 "$what" --link "$slow_link" --steps "$link_steps" ;;
    growth-*) speed_run "$1" "$strategy" "$world" "$what" --link $growth_link --steps $((warm_up + 6)) ;;
    buckets-*)
        train "$1" "$strategy" 2 "${options[@]}" --link "$slow_link" --bucket-cap-mb "$what" \
            --steps "$link_steps" --log-every 1
        ;;
    timeline-*) # GPUs are waited for as in measure_phases
        strategy=${1##*-}
        [[ $1 != timeline-link-* ]] || options+=(--link "$slow_link")
        [[ $strategy =~ ^(dp|fsdp)$ || $strategy$mine_like =~ ^mine(dp|fsdp)$ ]] || options+=(--bucket-cap-mb 1)
        [[ $kind == cpu ]] || options+=(--profile)
        train "$1" "$strategy" 2 "${options[@]}" --steps "$traced_steps" --trace "$out/trace-${1#timeline-}.json"
        ;;
    overlap-*)
        [[ $what != fast ]] || options+=(--link $fast_link)
        [[ $what != slow ]] || options+=(--link "$slow_link")
        [[ $strategy == overlapped ]] || options+=(--no-overlap)
        train "$1" ddp 2 "${options[@]}" --bucket-cap-mb 1 --steps "$traced_steps" --trace "$out/trace-$what-$strategy.json"
        ;;
    esac </dev/null
}

measure_link() {
    local repeat cap strategy where world
    has_link || return 0
    for ((repeat = 1; repeat <= (repeats + 1) / 2; repeat++)); do
        begin_section "slow link: repeat $repeat of $(((repeats + 1) / 2))"
        for strategy in $(link_strategies); do
            measure_run "link-${models%% *}-$strategy-2-$repeat"
            for world in $(timed_worlds); do measure_run "growth-${models%% *}-$strategy-$world-$repeat"; done
        done
        for strategy in $(bucket_strategies); do
            for cap in $bucket_caps; do measure_run "buckets-$cap-$strategy-2-$repeat"; done
        done
    done
    for where in memory fast slow; do
        measure_run overlap-$where-serial
        measure_run overlap-$where-overlapped
    done
}

# with_link TEXT: copies a CSV table and adds a column with the emulated link.
with_link() {
    awk -v link="${1#an emulated link of }" '{ print $0 "," (NR == 1 ? "emulated_link" : link) }'
}

# Writes summary-link.csv, difference-link.csv, growth.csv and buckets.csv.
summarize_link() {
    local strategy
    has_link || return 0
    first_model 2 | summary_rows link | with_link "$link_text" >"$out/summary-link.csv"
    write_differences -link
    first_model "$(timed_worlds)" | summary_rows growth | with_link "${growth_link/,/ Gbit\/s and } us" >"$out/growth.csv"
    for strategy in $(bucket_strategies); do
        has_failed "$strategy" buckets mlp 2 || summarize_buckets "$strategy" >"$out/buckets$([[ $strategy == ddp ]] || echo -mine).csv"
    done
}

# Prints the strategies that are measured over a link: fsdp only beside a fully sharded FILE of --mine.
link_strategies() {
    echo dp ddp
    [[ $mine_like != fsdp ]] || echo fsdp
    [[ -z $mine ]] || echo mine
}

# first_model WORLDS: prints "model strategy world" lines of the first model
first_model() {
    local strategy world
    for strategy in $(link_strategies); do
        for world in $1; do echo "${models%% *} $strategy $world"; done
    done
}

# Prints the strategies that have buckets.
bucket_strategies() {
    echo ddp
    [[ $mine_like != ddp ]] || echo mine
}

# summarize_buckets STRATEGY: prints the rows of buckets.csv.
summarize_buckets() {
    local cap
    {
        awk -v header=1 -f bench/compare/summarize.awk
        for cap in $bucket_caps; do summary_row "$cap" "$1" 2 buckets; done
    } | csv 'BEGIN { print "position,cap_mb,step_ms_p25,step_ms_p50,step_ms_p75,disturbed" }
        { printf "%d,%s,%s,%s,%s,%d\n", ++n, of("model"), of("step_ms_p25"), of("step_ms_p50"), of("step_ms_p75"), \
            of("disturbed") }'
}

# Keeps the profile of the deep network on one device, from which player.html predicts other steps.
save_profile() {
    has_link || return 0
    "$bin/bench_profile" --hidden $deep --rows 150 --rounds 10 --save "$out/profile.json" >"$out/profile.txt" 9<&-
}
