#!/bin/sh
# model_page.sh BIN: the page with the sliders (bench/model/whatif.html), in a browser without a window, computes the
# numbers that bench_scale prints, to nine digits. Ends with 77 where there is no chromium.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
section=$(cd "$(dirname "$0")/../../bench/model" && pwd)/section.sh
. "$(dirname "$0")/checks.sh"

run "a profile" "$bin/bench_profile" --hidden 300,200,100 --rows 16 --rounds 2 --save profile.json
run "the page" "$section" --page profile.json "$bin"
cp out.txt page.html
checks=$((checks + 1))
[ "$(grep -c '<tr><td>' page.html)" = 7 ] || fail "the table that needs no script"

# compare DEVICES GBIT LATENCY CAP ROWS ALGORITHM
compare() {
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/browser" --dump-dom \
        "file://$work/page.html#devices=$1&gbit=$2&latency=$3&cap=$4&rows=$5&algorithm=$6" >dom 2>/dev/null </dev/null
    grep -o 'data-numbers="[^"]*"' dom | sed 's/&quot;/"/g' >numbers
    "$bin/bench_scale" --profile profile.json --devices "$1" --gbit "$2" --latency-us "$3" --bucket-cap-mb "$4" \
        --rows "$5" --algorithm "$6" --buckets >scale
    checks=$((checks + 1))
    awk '
        # The page: {"dp":{"scatter":1e-3,...},"ddp":{...},"buckets":[{"bytes":..,"ready":..},...],"even":{...}}
        FNR == NR { page = $0; next }
        function in_page(object, name,    at, text) {
            at = match(page, "\"" object "\":[{][^}]*[}]")
            text = substr(page, RSTART, RLENGTH)
            match(text, "\"" name "\":[0-9.e+-]*")
            return at && RSTART ? sprintf("%.9g", 1e3 * substr(text, RSTART + length(name) + 3, RLENGTH - length(name) - 3)) : "nothing"
        }
        /^devices,/ { n = split($0, name, ","); next }
        $2 == "dp" || $2 == "ddp" {
            split($0, value, ",")
            for (i = 3; i <= 12; i++) {
                compared++
                if (in_page($2, name[i]) != value[i]) { print $2, name[i], "page", in_page($2, name[i]), "program", value[i]; bad = 1 }
            }
        }
        /^bucket,/ { in_buckets = 1; next }
        in_buckets && /^[0-9]/ { buckets++ }
        END {
            if (gsub(/"begin":/, "", page) != buckets) { print "another number of buckets than", buckets; bad = 1 }
            exit bad || compared != 20
        }' FS=, numbers scale >log || fail "$*: $(cat log)"
}
compare 2 10 10 1 64 ring
compare 37 0.3 250 0.01 17 ring
compare 4096 400 1.5 25 1000 tree
compare 1 10 10 1 8 ring
tally model_page
