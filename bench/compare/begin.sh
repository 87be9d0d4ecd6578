# begin.sh: the first line of bench's commands sources this file. It sets strict mode and the working directory (root,
# the checkout; here is the caller's), and defines the functions of setup.sh and of this folder, and the options that
# most commands have.
set -euo pipefail
export LC_ALL=C
here=$PWD
root=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd -P) # commands follow links to themselves before they source this
cd "$root"
source bench/setup.sh
for part in devices options progress results runs section disturbed; do
    # shellcheck source=/dev/null
    source "bench/compare/$part.sh"
done
# shellcheck disable=SC2034 # used by the commands and the functions
quick=0 install=0 resume=0 planning=0 rounds="" patience="" turns="" bin="" groups=build

# get_ready PROGRAM...: ends the command if --bin lacks a program; claims the folder of --out, then installs the
# packages of the groups of setup.sh and builds the programs, unless --bin was given.
get_ready() {
    need_programs "$@"
    claim_results
    [[ -z $bin ]] || return 0
    # shellcheck disable=SC2086 # groups are words
    setup_require "$install" $groups 9<&-
    setup_build "$root" build "$@" 9<&-
    bin=$root/build/bin
}
