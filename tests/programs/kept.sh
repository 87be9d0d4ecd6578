#!/bin/sh
# kept.sh: bench/results/keep.sh keeps a sitting's pages with all linked files, and sections from earlier sittings that
# it did not make.
keep=$(cd "$(dirname "$0")/../../bench/results" && pwd)/keep.sh
. "$(dirname "$0")/checks.sh"

mkdir -p bench/results/here bench/out/plots bench/out-real bench/out-paper
cp "$keep" bench/results
echo "old peers" >bench/results/here/peers.md
for file in report.html profile.json summary.csv repeats.csv difference.csv speed.svg plots/timeline.csv; do echo "$file" >"bench/out/$file"; done
cat >bench/out/report.md <<'ENDED'
The reference result (bench/results/here) was made on another machine.
- [Real](../out-real/section.md)
![speed](speed.svg) [timeline.csv](plots/timeline.csv)
[section](../out-real/section.md)
ENDED
echo "[real.csv](real.csv)" >bench/out-real/section.md && echo real >bench/out-real/real.csv
echo "![b](paper-b.svg) [summary.csv](summary.csv)" >bench/out-paper/section.md
echo paper >bench/out-paper/summary.csv && echo picture >bench/out-paper/paper-b.svg
echo "The reference result (bench/results/here) was made on another machine." >>bench/out/report.html
checks=1
! bench/results/keep.sh >out.txt 2>err.txt && grep -q '^keep.sh DIR: copies' err.txt || fail "keep.sh without a folder: $(cat err.txt)"
run "keep.sh" bench/results/keep.sh here
cd bench/results/here || exit 1
for expected in "peers.md:old peers" "timeline.csv:plots/timeline.csv" "summary.csv:summary.csv" "paper-summary.csv:paper" "real.csv:real" \
    "report.html:report.html" "paper.md:![b](paper-b.svg) [summary.csv](paper-summary.csv)" "paper-b.svg:picture"; do
    checks=$((checks + 1))
    [ "$(cat "${expected%%:*}" 2>&1)" = "${expected#*:}" ] || fail "$expected: $(cat "${expected%%:*}" 2>&1)"
done
checks=$((checks + 1))
[ "$(cat report.md)" = "- [Real](real.md)
![speed](speed.svg) [timeline.csv](timeline.csv)
[real](real.md)" ] || fail "report.md: $(cat report.md)"
tally kept
