# player.sh: player.html, a step of DP above one of DDP that plays, from their traces. Sourced by compare.sh after link.sh;
# needs python3, and without it says so.

# write_player: of the traces of trace_steps, and of the profile of write_what_if.
write_player() {
    local -a scenes=(--scene memory "through memory" "$out"/trace-{dp,ddp}.json)
    local -a link
    is_timed 2 && has_link || return 0
    command -v python3 >/dev/null || { say "there is no python3: no player.html" && return 0; }
    IFS=, read -r -a link < <(sed -E 's/.* of ([0-9.e+-]+) Gbit\/s and ([0-9.e+-]+) us.*/\1,\2/' <<<"$link_text")
    scenes+=(--scene link "over ${link[0]} Gbit/s" "$out"/trace-link-{dp,ddp}.json)
    python3 bench/report/player/player.py "$out/player.html" --network "$timeline_model" --profile "$out/profile.json" \
        --gbit "${link[0]}" --latency-us "${link[1]}" "${scenes[@]}"
}
