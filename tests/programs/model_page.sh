#!/bin/sh
# model_page.sh BIN: player.html, in a headless browser, computes the numbers that bench_scale prints, to the last
# printed digit, for settings of all its sliders: the parts of the steps, the times of all buckets and the break-even
# network. Settings come from the page's address and from moved sliders. Ends with 77 without chromium.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/checks.sh"

run "a profile" "$bin/bench_profile" --hidden 300,200,100 --rows 16 --rounds 2 --save profile.json
mkdir results && cp profile.json results
run "the page" env PYTHONPATH="$root/bench" python3 -B -m report player results
cp results/player.html page.html
# Simulates a reader who moves each slider: each event changes one value. The texts beside the sliders are recorded too.
cat >moved.html <<'END'
<script>
for (const [id, value] of [["devices", 5], ["gbit", 0.5], ["latency", 1.5], ["call", 40], ["cap", -1], ["rows", 4], ["algorithm", "tree"]]) {
    const input = document.getElementById(id)
    input.value = value
    input.dispatchEvent(new Event("input", { bubbles: true }))
}
document.body.dataset.shown = ["devices", "gbit", "latency", "call", "cap", "rows"].map(id => document.getElementById(id + "-shown").textContent).join(" ")
</script>
END
sed '/^<\/body>/e cat moved.html' page.html >by_hand.html

# numbers ADDRESS: writes the page's computed numbers to the file numbers.
numbers() {
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/browser" --dump-dom \
        "file://$work/$1" >dom 2>/dev/null </dev/null
    grep -o 'data-numbers="[^"]*"' dom | sed 's/&quot;/"/g' >numbers
}

# compare DEVICES GBIT LATENCY CALL CAP ROWS ALGORITHM: compares these numbers with bench_scale's.
compare() {
    "$bin/bench_scale" --profile profile.json --devices "$1" --gbit "$2" --latency-us "$3" --call-us "$4" --bucket-cap-mb "$5" \
        --rows "$6" --algorithm "$7" --buckets >scale
    checks=$((checks + 1))
    awk '
        # The page: {"dp":{"scatter":1e-3,...},"ddp":{...},"buckets":[{"bytes":..,"ready":..},...],"even":{"dp":"12.5",..}}
        FNR == NR { page = $0; next }
        # Prints the number after the name in a text, in the format of the program.
        function number_of(text, name, times, format) {
            if (!match(text, "\"" name "\":\"?[0-9.eInfity+-]*")) return "nothing"
            text = substr(text, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
            sub(/^"/, "", text)
            return text == "Infinity" ? "every" : text == "0" && format == "%.6g" ? "any" : sprintf(format, times * text)
        }
        function in_page(object) {
            match(page, "\"" object "\":[{][^}]*[}]")
            return substr(page, RSTART, RLENGTH)
        }
        function same(what, seen, wanted) {
            compared++
            if (seen != wanted) { print what, "page", seen, "program", wanted; bad = 1 }
        }
        /^devices,/ { n = split($0, name, ","); next }
        $2 == "dp" || $2 == "ddp" || $2 == "fsdp" {
            split($0, value, ",")
            for (i = 3; i <= 12; i++) same($2 " " name[i], number_of(in_page($2), name[i], 1e3, "%.9g"), value[i])
        }
        / is (faster|slower) than one device /  {
            split($0, word, " ")
            even = /from/ ? $0 : /any network/ ? "any" : "every"
            sub(/.* from /, "", even)
            sub(/ Gbit.*/, "", even)
            same(word[2] " pays", number_of(in_page("even"), word[2], 1, "%.6g"), even)
        }
        /^bucket,/ { in_buckets = 1; split(page, of_page, /[{]"bytes"/); next }
        in_buckets && /^[0-9]/ {
            text = "\"bytes\"" of_page[++buckets + 1]
            sub(/[}].*/, "", text)
            same("bucket " $1 " bytes", number_of(text, "bytes", 1, "%.0f"), $3)
            same("bucket " $1 " ready", number_of(text, "ready", 1e3, "%.9g"), $4)
            same("bucket " $1 " begin", number_of(text, "begin", 1e3, "%.9g"), $5)
            same("bucket " $1 " end", number_of(text, "end", 1e3, "%.9g"), $6)
        }
        END {
            if (gsub(/"begin":/, "", page) != buckets) { print "another number of buckets than", buckets; bad = 1 }
            exit bad || compared != 33 + 4 * buckets
        }' FS=, numbers scale >log || fail "$*: $(cat log)"
}

# at DEVICES GBIT LATENCY CALL CAP ROWS ALGORITHM: sets the values in the address.
at() {
    numbers "page.html#devices=$1&gbit=$2&latency=$3&call=$4&cap=$5&rows=$6&algorithm=$7"
    compare "$@"
}
at 2 10 10 0 1 64 ring
at 37 0.3 250 130 0.01 17 ring
at 4096 400 1.5 7.5 25 1000 tree
at 1 10 10 20 1 8 ring
# 2^5 devices, 10^0.5 = 3.16 Gbit/s, 10^1.5 = 31.62 us, 40 us, 10^-1 MiB, 2^4 rows.
numbers by_hand.html
compare 32 3.16 31.62 40 0.1 16 tree
checks=$((checks + 1))
grep -q 'data-shown="32 3.2 31.6 40.0 0.10 16"' dom || fail "beside the sliders: $(grep -o 'data-shown="[^"]*"' dom)"
tally model_page
