#!/usr/bin/env bash
# keep.sh DIR: copies results into bench/results/DIR: those of bench/compare.sh from bench/out, and those of the commands with
# their own section from bench/out-NAME (section.md becomes NAME.md). A CSV file that a page links is copied with the page's name
# before its own; sections that were not measured this time are unchanged. Tables of single runs, traces and PNGs are not copied.
# two-cores is the reference, whose figures are in README.md: they are updated there, too.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
[[ $# == 1 && $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ && -f bench/out/report.md ]] || { sed -n '2,6s/^# \{0,1\}//p' bench/results/keep.sh >&2 && exit 2; }
to=bench/results/$1
mkdir -p "$to"

# keep_page FOLDER PAGE NAME: copies a page as NAME.md, with its figures and CSV files.
keep_page() {
    local link kept
    cp "$1/$2" "$to/$3.md"
    find "$1" -maxdepth 1 -name '*.svg' -exec cp {} "$to" \;
    while read -r link; do
        kept=$(basename "$link")
        [[ $3 == report || $kept == "$3"* ]] || kept=$3-$kept
        cp "$1/$link" "$to/$kept"
        sed -i "s,]($link),]($kept),g" "$to/$3.md"
    done < <(grep -oE '\]\([^)]+\.csv\)' "$1/$2" | sed 's/^](\(.*\))$/\1/' | sort -u)
}

keep_page bench/out report.md report
sed -i -E 's,\[section\]\(\.\./out-([a-z]+)/,[\1](../out-\1/,; s,\.\./out-([a-z]+)/section\.md,\1.md,g' "$to/report.md"
cp bench/out/{report.html,profile.json,summary.csv,repeats.csv,difference.csv} "$to"
for file in {summary,difference}-link.csv {growth,buckets,networks}.csv facts.txt player.html; do
    [[ ! -f bench/out/$file ]] || cp bench/out/$file "$to"
done
sed -i '/^The reference result (/d' "$to"/report.{md,html} # which compares with the results that these replace
for folder in bench/out-*/; do
    name=$(basename "$folder")
    name=${name#out-}
    [[ ! -f $folder/section.md ]] || keep_page "$folder" section.md "$name"
done
[[ $1 != two-cores ]] || PYTHONPATH=bench python3 -B -m report readme "$to" README.md
ls "$to"
