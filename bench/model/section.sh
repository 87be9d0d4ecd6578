#!/bin/sh
# section.sh PROFILE [BIN]: prints the what-if of a profile (bench_profile --save) as a piece of HTML, for
# a report: a table that bench_scale computes, and sliders where scripts run. `section.sh --page` makes it a
# page of its own.
set -eu
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
page=
[ "${1:-}" != --page ] || { page=page && shift; }
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0" >&2 && exit 2; }
profile=$1 bin=${2:-$here/../../build/bin}
[ -r "$profile" ] || { echo "error: cannot read $profile" >&2 && exit 2; }
scale=$("$bin/bench_scale" --profile "$profile" --devices 1,2,4,8,64,512,4096 --bucket-cap-mb 1)
echo "$scale" | PYTHONPATH=$here/.. python3 -B -m report whatif "$profile" $page
