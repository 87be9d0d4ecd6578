#!/bin/sh
# section.sh PROFILE [BIN]: prints the what-if of a profile (bench_profile --save) as a piece of HTML, for
# a report: a table that bench_scale computes, and sliders where scripts run. `section.sh --page` makes it a
# page of its own.
set -eu
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
page=0
[ "${1:-}" != --page ] || { page=1 && shift; }
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0" >&2 && exit 2; }
profile=$1 bin=${2:-$here/../../build/bin}
[ -r "$profile" ] || { echo "error: cannot read $profile" >&2 && exit 2; }

table() {
    "$bin/bench_scale" --profile "$profile" --devices 1,2,4,8,64,512,4096 --bucket-cap-mb 1 | awk -F, '
        /^#/ && !title { title = substr($0, 3); print "<p>" title ". Milliseconds of a step:</p><table>"
            print "<tr><th>devices</th><th>DP</th><th>DDP</th><th>exposed in DDP</th></tr>"; next }
        /^devices,/ { for (i = 1; i <= NF; i++) column[$i] = i; next }
        $2 == "dp" { dp = $column["step"] }
        $2 == "ddp" { printf "<tr><td>%s</td><td>%.1f</td><td>%.1f</td><td>%.1f</td></tr>\n", $1, dp, $column["step"], $column["exposed"] }
        END { print "</table>" }'
}
[ $page = 0 ] || printf '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>What if?</title>\n<style>@media (prefers-color-scheme: dark) { body { background: #16181b } }</style></head><body>\n'
table=$(table)
TABLE=$table awk -v profile="$profile" -v model="$here/step_model.js" '
    /^<!-- TABLE -->$/ { print ENVIRON["TABLE"]; next }
    $0 == "@MODEL@" { while ((getline line <model) > 0) print line; next }
    (at = index($0, "@PROFILE@")) > 0 {
        printf "%s", substr($0, 1, at - 1)
        while ((getline line <profile) > 0) { gsub("<", "\\u003c", line); print line }
        print substr($0, at + 9)
        next
    }
    { print }' "$here/whatif.html"
[ $page = 0 ] || echo '</body></html>'
