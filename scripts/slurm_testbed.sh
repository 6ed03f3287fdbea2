#!/usr/bin/env bash
# A real SLURM of several nodes on this one machine, to try jobs on. Nothing in /etc is touched, nothing needs systemd.
#
#   bash scripts/slurm_testbed.sh install              get Debian's packages, where they are missing (apt)
#   bash scripts/slurm_testbed.sh start [NODES [CPUS]] 3 nodes n1, n2, ... of 4 CPUs and 2 pretended GPUs each
#   eval "$(bash scripts/slurm_testbed.sh env)"        from here on sbatch, squeue, ... mean this SLURM
#   bash scripts/slurm_testbed.sh wait JOB [SECONDS]   until a job has ended; prints its state, 0 if that is COMPLETED
#   bash scripts/slurm_testbed.sh kill-node n2         as if the power had failed; start-node n2 brings it back
#   bash scripts/slurm_testbed.sh as-user COMMAND ...  runs a command as the user of this SLURM
#   bash scripts/slurm_testbed.sh status | stop
#
# A node is a slurmd with a host name, processes and shared memory of its own (namespaces, so it takes root). All files lie in
# $MPIFL_SLURM (by default mpifl-slurm in the folder for temporary files). Exit code 77: it cannot run here; the line says why.
# MPIFL_SLURM_USER=NAME:NUMBER is the Unix user that daemons and jobs run as, by default root:0. Another one than root need not be
# known to the system: its line of /etc/passwd is seen by these daemons and as-user alone.
set -uo pipefail
self=${BASH_SOURCE[0]}
at=${MPIFL_SLURM:-${TMPDIR:-/tmp}/mpifl-slurm}
user=${MPIFL_SLURM_USER:-root:0}
owner=${user#*:}
export SLURM_CONF=$at/slurm.conf PATH=$PATH:/usr/sbin:/sbin

die() { echo "slurm_testbed: $*" >&2; exit 1; }
cannot() { echo "slurm_testbed: $*" >&2; exit 77; }
runs() { grep -q '^State:[[:space:]]*[^Z]' "/proc/$1/status" 2>/dev/null; } # and is no zombie
lives() { [[ -s $1 ]] && runs "$(<"$1")"; }
gone() { ! runs "$1"; }

as_user() { # as_user COMMAND...; in a mount namespace of its own, where it is no function of this script
    [[ $owner = 0 ]] && { command "$@"; return; }
    # shellcheck disable=SC2016
    unshare --mount bash -c 'mount --bind "$1/passwd" /etc/passwd
        exec setpriv --reuid "$2" --regid "$2" --clear-groups "${@:3}"' - "$at" "$owner" "$@"
}
scontrol() { as_user scontrol "$@"; }
sinfo() { as_user sinfo "$@"; }
squeue() { as_user squeue "$@"; }

until_ok() { # until_ok SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

# --- Packages --------------------------------------------------------------------------------------------------------

# libpmix-dev only for the name libpmix.so, which the plugin behind --mpi=pmix opens.
packages=(slurmctld slurmd slurm-client munge libpmix-dev)

installed() { [[ $(dpkg-query -W -f '${Status}\n' "${packages[@]}" 2>/dev/null | grep -c 'ok installed') = "${#packages[@]}" ]]; }

install() {
    installed && return
    [[ $(id -u) = 0 ]] || cannot "needs root to install ${packages[*]}"
    command -v apt-get >/dev/null || cannot "needs ${packages[*]}, and there is no apt-get to install them with"
    local said
    said=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get install -y --no-install-recommends "${packages[@]}" ||
        { apt-get update && apt-get install -y --no-install-recommends "${packages[@]}"; }; } >"$said" 2>&1 </dev/null; then
        tail -n 5 "$said" >&2
        cannot "apt-get could not install ${packages[*]}; all it said is in $said"
    fi
    rm -f "$said"
    echo "installed ${packages[*]}"
}

# --- Nodes -----------------------------------------------------------------------------------------------------------

# The first of 64 ports with none in use, below those that the system gives out by itself.
free_ports() {
    local first used
    used=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { split($2, a, ":"); print a[2] }')
    for first in {17000..31000..64}; do
        for port in $(seq "$first" $((first + 63))); do
            grep -qix "$(printf %04X "$port")" <<<"$used" && continue 2
        done
        echo "$first"
        return
    done
    die "no 64 free ports"
}

configure() { # configure NODES CPUS
    local first node
    first=$(free_ports)
    cat >"$at/slurm.conf" <<CONF
ClusterName=testbed
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$first
SlurmUser=${user%:*}
SlurmdUser=${user%:*}
AuthType=auth/munge
AuthInfo=socket=$at/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# a step that takes more memory than its job has asked for is killed, without cgroups
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherParams=OverMemoryKill
JobAcctGatherFrequency=task=1
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,bf_interval=2,sched_interval=5
DefMemPerCPU=1000
# more CPUs than the machine has
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation=$at/state
SlurmdSpoolDir=$at/spool.%n
TmpFS=$at/tmp.%n
TaskProlog=$at/task_prolog
SlurmctldPidFile=$at/slurmctld.pid
SlurmdPidFile=$at/slurmd.%n.pid
SlurmctldLogFile=$at/slurmctld.log
SlurmdLogFile=$at/slurmd.%n.log
# how soon a dead node is noticed, and what is left between TERM and KILL
SlurmdTimeout=10
KillWait=5
MinJobAge=3600
MailProg=/bin/true
GresTypes=gpu
CONF
    printf '#!/bin/sh\necho "export TMPDIR=%s/tmp.$SLURMD_NODENAME"\n' "$at" >"$at/task_prolog"
    chmod +x "$at/task_prolog"
    echo AutoDetect=off >"$at/gres.conf"
    cp /etc/hosts "$at/hosts"
    mknod "$at/gpu0" c 195 0 && mknod "$at/gpu1" c 195 1 || cannot "may not make device nodes (mknod), as GPUs to pretend"
    for node in $(seq "$1"); do
        echo "NodeName=n$node NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((first + node)) CPUs=$2 RealMemory=4000 Gres=gpu:2 State=UNKNOWN" >>"$at/slurm.conf"
        echo "NodeName=n$node Name=gpu File=$at/gpu[0-1]" >>"$at/gres.conf"
        echo "127.0.0.1 n$node" >>"$at/hosts"
        mkdir -p "$at/spool.n$node"
    done
    echo "PartitionName=main Nodes=n[1-$1] Default=YES MaxTime=INFINITE State=UP" >>"$at/slurm.conf"
}

start_node() { # as process 1 of its namespace, so that nothing outlives it
    lives "$at/$1.node" && return
    # shellcheck disable=SC2016
    setsid unshare --uts --mount --pid --fork --kill-child --mount-proc bash -c '
        hostname "$1"
        mount --bind "$2/hosts" /etc/hosts
        mount --bind "$2/passwd" /etc/passwd
        mount -t tmpfs tmpfs /dev/shm
        rm -rf "$2/tmp.$1" && mkdir "$2/tmp.$1" # Open MPI names sessions by PID, and a new node begins with low ones
        chown "$3:$3" "$2/tmp.$1"
        # a change of user clears the signal by which it dies with its node
        exec setpriv --reuid "$3" --regid "$3" --clear-groups --pdeathsig KILL slurmd -D -N "$1" -f "$2/slurm.conf"
        ' - "$1" "$at" "$owner" >"$at/$1.out" 2>&1 </dev/null &
    echo $! >"$at/$1.node"
    until_ok 60 is_up "$1" || die "node $1 does not come up: $(tail -n 3 "$at/$1.out" "$at/slurmd.$1.log" 2>&1)"
}

is_up() { # a node that is back may be listed as idle before a step can start there
    [[ $(sinfo -h -N -n "$1" -o %T) =~ ^(idle|mixed|allocated|completing)$ ]] &&
        as_user timeout 10 srun --quiet --nodelist="$1" --nodes=1 --ntasks=1 true
}

kill_node() {
    local pid
    lives "$at/$1.node" || return 0
    pid=$(<"$at/$1.node")
    kill -KILL "$pid"
    until_ok 10 gone "$pid"
    rm -f "$at/$1.node"
}

# --- All of it -------------------------------------------------------------------------------------------------------

start() { # start [NODES [CPUS]]
    local nodes=${1:-3} node
    lives "$at/slurmctld.pid" && die "one is running in $at; stop it first"
    [[ $(id -u) = 0 ]] || cannot "needs root: each node is in namespaces of its own"
    unshare --uts --mount --pid --fork --mount-proc true 2>/dev/null || cannot "may not make namespaces here (unshare)"
    install || exit
    rm -rf "$at"
    mkdir -p "$at/state"
    chmod 755 "$at"
    { cat /etc/passwd && [[ $owner = 0 ]] || echo "${user/:/:x:}:$owner::/nonexistent:/bin/bash"; } >"$at/passwd"
    head -c 128 /dev/urandom >"$at/munge.key"
    chmod 600 "$at/munge.key"
    chown -R "$owner:$owner" "$at"
    as_user munged --key-file="$at/munge.key" --socket="$at/munge.socket" --pid-file="$at/munged.pid" --log-file="$at/munged.log" \
        --seed-file="$at/munge.seed" || die "munged: $(tail -n 3 "$at/munged.log")"
    exec 8>"${TMPDIR:-/tmp}/mpifl-slurm-ports.lock"   # two test beds that start at once would find the same ports free
    flock 8
    configure "$nodes" "${2:-4}"
    chown -R "$owner:$owner" "$at"
    as_user slurmctld -c -f "$at/slurm.conf" 8>&- || die "slurmctld: $(tail -n 3 "$at/slurmctld.log")"
    until_ok 15 scontrol ping || die "slurmctld does not answer: $(tail -n 3 "$at/slurmctld.log")"
    exec 8>&-
    for node in $(seq "$nodes"); do
        start_node "n$node"
    done
    echo "SLURM with $nodes nodes is up; eval \"\$(bash $self env)\" to use it"
}

stop() {
    local file
    lives "$at/slurmctld.pid" && as_user timeout 5 scancel --user="$owner"
    end "$at/slurmctld.pid"                      # before its nodes, of which it would wait for answers
    for file in "$at"/*.node; do
        [[ -e $file ]] && kill_node "$(basename "$file" .node)"
    done
    end "$at/munged.pid"
    rm -rf "$at"
}

end() { # end PIDFILE
    local pid
    lives "$1" || return 0
    pid=$(<"$1")                                 # which the daemon removes before it ends
    kill "$pid"
    until_ok 8 gone "$pid" || kill -KILL "$pid"
}

wait_for() { # wait_for JOB [SECONDS]
    local end=$((SECONDS + ${2:-120})) states
    while ((SECONDS < end)); do
        states=$(scontrol show job -o "$1" | grep -o 'JobState=[A-Z_]*' | cut -d= -f2 | sort -u | tr '\n' ' ')
        if [[ -n $states && ! $states =~ PENDING|RUNNING|COMPLETING|CONFIGURING|SUSPENDED ]]; then
            echo "${states% }"
            [[ $states = "COMPLETED " ]]
            return
        fi
        sleep 0.2
    done
    echo "still ${states% }"
    return 124
}

case ${1:-} in
    install) install ;;
    start) start "${@:2}" ;;
    env) echo "export SLURM_CONF=$at/slurm.conf" ;;
    wait) wait_for "${@:2}" ;;
    kill-node) kill_node "$2" ;;
    start-node) start_node "$2" ;;
    as-user) as_user "${@:2}" ;;
    status) sinfo -N -l && squeue ;;
    stop) stop ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$self"; exit 2 ;;
esac
