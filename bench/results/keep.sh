#!/usr/bin/env bash
# keep.sh DIR: keeps the results of one sitting in bench/results/DIR: what bench/compare.sh left in bench/out, and what the
# commands with sections of their own left beside it in bench/out-NAME (section.md becomes NAME.md). Tables of every
# single run, traces and PNGs stay where they are.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
[[ $# == 1 && $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ && -f bench/out/report.md ]] || { sed -n '2,4s/^# \{0,1\}//p' bench/results/keep.sh >&2 && exit 2; }
to=bench/results/$1
rm -rf "$to"
mkdir -p "$to"
cp bench/out/{report.md,report.html,profile.json,summary.csv,repeats.csv,difference.csv} bench/out/*.svg "$to"
for file in {summary,difference}-link.csv {growth,buckets,networks}.csv facts.txt player.html; do
    [[ ! -f bench/out/$file ]] || cp bench/out/$file "$to"
done
for folder in bench/out-*/; do
    name=$(basename "$folder")
    name=${name#out-}
    [[ -f $folder/section.md ]] || continue
    cp "$folder/section.md" "$to/$name.md"
    find "$folder" -maxdepth 1 \( -name '*.svg' -o -name "$name*.csv" \) -exec cp {} "$to" \;
done
ls "$to"
