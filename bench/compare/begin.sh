# begin.sh: what the commands of bench begin with, by their first line: strict mode, the checkout as the working directory
# (root; here is the caller's), the functions of setup.sh and of this folder, and the options that nearly all have.
set -euo pipefail
export LC_ALL=C
here=$PWD
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
cd "$root"
source bench/setup.sh
for part in devices options progress results runs section disturbed; do
    # shellcheck source=/dev/null
    source "bench/compare/$part.sh"
done
# shellcheck disable=SC2034 # the commands' and the functions'
quick=0 install=0 resume=0 planning=0 rounds="" patience="" turns="" bin="" groups=build

# get_ready PROGRAM...: ends the command if --bin lacks a program; takes the folder of --out, then installs what the groups of
# setup.sh need and builds the programs, unless --bin was given.
get_ready() {
    need_programs "$@"
    claim_results
    [[ -z $bin ]] || return 0
    # shellcheck disable=SC2086 # groups are words
    setup_require "$install" $groups 9<&-
    setup_build "$root" build "$@" 9<&-
    bin=$root/build/bin
}
