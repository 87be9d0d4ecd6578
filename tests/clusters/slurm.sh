# slurm.sh: Slurm on the two hosts of hosts.sh: munge, one slurmctld, a slurmd on each host; sourced after hosts.sh.
# Ends with 77 (skipped) if its programs are missing; if they do not start, the test fails. The system's own Slurm and
# munge are neither used nor changed.
#
#     slurm_open            starts it, on open hosts
#     on 1 srun ...         then runs a step on both hosts
for tool in munged slurmctld slurmd srun sbatch; do
    PATH=$PATH:/usr/sbin command -v $tool >/dev/null || skip "there is no $tool"
done
PATH=$PATH:/usr/sbin

broken() {
    echo "FAILED: $*"
    exit 1
}

slurm_open() {
    export SLURM_CONF="$work/slurm.conf"
    mkdir -p ctld spool_host-1 spool_host-2 tmp_host-1 tmp_host-2
    chmod 755 "$work"
    dd if=/dev/urandom of=munge.key bs=1024 count=1 2>/dev/null
    chmod 400 munge.key
    trap 'slurm_close; hosts_close; rm -rf "$work"' EXIT
    munged --force --key-file="$work/munge.key" --socket="$work/munge.socket" --pid-file="$work/munge.pid" \
        --log-file="$work/munge.log" --seed-file="$work/munge.seed" --num-threads=1 >munged.txt 2>&1 ||
        broken "munged does not start: $(cat munged.txt)"
    # Nodes have the hosts' names.
    one=$(host 1) two=$(host 2)
    mkdir -p "spool_$one" "spool_$two" "tmp_$one" "tmp_$two"
    cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$one($net.1)
SlurmctldPort=26817
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/ctld
SlurmdSpoolDir=$work/spool_%n
TmpFS=$work/tmp_%n
SlurmdPidFile=$work/%n.pid
SlurmctldPidFile=$work/ctld.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=$one NodeHostname=$one NodeAddr=$net.1 Port=26818 CPUs=2
NodeName=$two NodeHostname=$two NodeAddr=$net.2 Port=26818 CPUs=2
PartitionName=p Nodes=$one,$two Default=YES State=UP OverSubscribe=FORCE:8
CONF
    on 1 slurmctld -c -f "$SLURM_CONF" >ctld.txt 2>&1 || broken "slurmctld: $(cat ctld.txt)"
    on 1 slurmd -N "$one" -f "$SLURM_CONF" >slurmd1.txt 2>&1 || broken "slurmd: $(tail -n 3 slurmd1.txt "$one.log")"
    on 2 slurmd -N "$two" -f "$SLURM_CONF" >slurmd2.txt 2>&1 || broken "slurmd: $(cat slurmd2.txt)"
    tries=0
    until [ "$(on 1 timeout 10 sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { cat ctld.log && broken "Slurm's nodes do not come up"; }
        sleep 0.2
    done
}

slurm_close() {
    [ ! -s munge.pid ] || kill "$(cat munge.pid)" 2>/dev/null
    return 0
}

# step TIMEOUT OPTION... COMMAND...: runs srun on both hosts
step() {
    seconds=$1
    shift
    on 1 timeout -v -k 5 "$seconds" srun -N2 "$@"
}
