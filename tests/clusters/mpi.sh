# mpi.sh: shared by the tests with MPI; sourced after programs/checks.sh. $2 is the MPI of the build: openmpi, mpich or
# none. Ends with 77 (skipped) if its mpirun is missing.
#
# Output goes to files, never through pipes: an MPI daemon that is left behind a cut link would keep a pipe open. Every
# command has a timeout.
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
# Open MPI: allow root, more ranks than cores, and bind no rank to a core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
# Variables of a launcher around this test must not reach its jobs.
for name in $(env | sed -n 's/^\(OMPI_COMM[A-Z_]*\|PMI_[A-Z_]*\|PMIX_[A-Z_]*\|SLURM_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done

# Each job of Open MPI has its own folder for files: a job that ends removes shared ones.
jobs=0
new_job() {
    jobs=$((jobs + 1))
    mkdir -p "$work/job.$$.$jobs"
    export OMPI_MCA_orte_tmpdir_base="$work/job.$$.$jobs"
}

# ranks N COMMAND...: runs N ranks on this machine
ranks() {
    count=$1
    shift
    new_job
    timeout -v -k 5 "${limit:-60}" "$mpirun" -np "$count" "$@"
}

# by_itself WHAT STATUS: the job whose stderr is in err.txt has failed without reaching our timeout
by_itself() {
    checks=$((checks + 1))
    [ "$2" != 0 ] || fail "$1: status 0"
    ! grep '^timeout: sending signal' err.txt || fail "$1: the job did not end by itself: $(tail -n 5 err.txt)"
}

# under_way: waits until the job that writes out.txt and err.txt has completed three steps
under_way() {
    tries=0
    until grep -q '^step=3 ' out.txt; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { fail "no training: $(cat err.txt)" && break; }
        sleep 0.1
    done
}
