# mpi.sh: what the tests with MPI share; sourced after programs/checks.sh. $2 says which MPI the programs are
# built with: openmpi, mpich or none. Ends with 77 (skipped) where that one's mpirun is not to be had.
#
# Output goes to files and never through pipes: a daemon of MPI that is left behind a dead link would hold a
# pipe open. Everything is under a timeout.
mpi=$2
skip() {
    echo "skipped: $*"
    exit 77
}
[ "$mpi" != none ] || skip "this build has no MPI"
mpirun=$(command -v "mpirun.$mpi") || mpirun=$(command -v mpirun) || skip "there is no mpirun"
case $mpi-$("$mpirun" --version 2>&1) in
openmpi-*"Open MPI"* | openmpi-*OpenRTE* | mpich-*HYDRA* | mpich-*MPICH*) ;;
*) skip "$mpirun is not $mpi's" ;;
esac
# For Open MPI: root may, more ranks than cores are fine, and none is bound to a core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
# What a starter around this test has said is not for those in it.
for name in $(env | sed -n 's/^\(OMPI_COMM[A-Z_]*\|PMI_[A-Z_]*\|PMIX_[A-Z_]*\|SLURM_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done

# Each job of Open MPI keeps its files in a folder of its own: one that ends takes away what it shares.
jobs=0
new_job() {
    jobs=$((jobs + 1))
    mkdir -p "$work/job.$$.$jobs"
    export OMPI_MCA_orte_tmpdir_base="$work/job.$$.$jobs"
}

# ranks N COMMAND...: N ranks on this machine
ranks() {
    count=$1
    shift
    new_job
    timeout -v -k 5 "${limit:-60}" "$mpirun" -np "$count" "$@"
}

# by_itself WHAT STATUS: the job that has written err.txt failed, and no timeout of ours has ended it
by_itself() {
    checks=$((checks + 1))
    [ "$2" != 0 ] || fail "$1: status 0"
    ! grep '^timeout: sending signal' err.txt || fail "$1: the job did not end by itself: $(tail -n 5 err.txt)"
}

# under_way: waits until the job that writes out.txt and err.txt has trained three steps
under_way() {
    tries=0
    until grep -q '^step=3 ' out.txt; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { fail "no training: $(cat err.txt)" && break; }
        sleep 0.1
    done
}
