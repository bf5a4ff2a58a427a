# Sourced: a cluster of two nodes with eight GPUs each, of Debian's Slurm with its accounting, in $folder.
# Nothing is installed: the packages are unpacked there. Debian 12 and root, for apt-get's cache.
version=22.05.8-4+deb12u3
mkdir -p debs/partial root state munge db log n1 n2
pins() { for each in slurmctld slurmd slurmdbd slurm-client slurm-wlm-mysql-plugin; do echo "$each${LATEST:-=$version}"; done; }
pins | sed 's/1$//' | xargs apt-get install -qq -y --no-install-recommends --download-only \
    -o Dir::Cache::archives="$folder/debs" munge mariadb-server >log/apt 2>&1 || { cat log/apt; exit 1; }
for deb in debs/*.deb; do dpkg -x "$deb" root; done
rm -r debs

root=$folder/root
# The daemons tell by their names what they are.
for name in slurmctld slurmd slurmstepd; do ln -s "$name-wlm" "$root/usr/sbin/$name"; done
libraries=$root/usr/lib/x86_64-linux-gnu
environment=(env LD_LIBRARY_PATH="$libraries:$libraries/slurm-wlm" PATH="$root/usr/bin:$root/usr/sbin:$PATH" SLURM_CONF="$folder/slurm.conf")
slurm() { "${environment[@]}" "$@"; }
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
db=$(port) dbd=$(port) ctld=$(port) node1=$(port) node2=$(port)
pids=()
at_end() { kill "${pids[@]}"; kill "$(cat munged.pid)"; sleep 1; kill -9 "${pids[@]}"; wait; }
daemon() { "${environment[@]}" setsid "$@" >>log/out 2>&1 & pids+=($!); }
until_ok() { for _ in $(seq 60); do "$@" >>log/out 2>&1 && return; sleep 0.5; done; tail log/*; exit 1; }

head -c 128 /dev/urandom >munge/key
chmod 700 munge
chmod 600 munge/key
slurm munged --force --key-file="$folder/munge/key" --socket="$folder/socket" --pid-file="$folder/munged.pid" \
    --log-file="$folder/log/munged" --seed-file="$folder/munge/seed"
slurm mariadb-install-db --no-defaults --user=root --basedir="$root/usr" --datadir="$folder/db" \
    --auth-root-authentication-method=normal --skip-test-db >log/db 2>&1
daemon mariadbd --no-defaults --user=root --basedir="$root/usr" --datadir="$folder/db" --plugin-dir="$root/usr/lib/mysql/plugin" \
    --socket="$folder/mariadb" --bind-address=127.0.0.1 --port="$db" --skip-name-resolve --innodb-buffer-pool-size=64M
sql() { slurm mariadb --no-defaults --socket="$folder/mariadb" -uroot -e "$1"; }
until_ok sql "create user s@'127.0.0.1' identified by 's'"
sql "grant all on *.* to s@'127.0.0.1'"
auth="AuthType=auth/munge
AuthInfo=socket=$folder/socket,cred_expire=5
SlurmUser=root
PluginDir=$libraries/slurm-wlm"
cat >slurmdbd.conf <<CONF
$auth
DbdHost=localhost
DbdPort=$dbd
PidFile=$folder/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$db
StorageUser=s
StoragePass=s
StorageLoc=slurm
CONF
chmod 600 slurmdbd.conf
cat >slurm.conf <<CONF
$auth
ClusterName=c
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$ctld
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
SlurmdSpoolDir=$folder/%n
StateSaveLocation=$folder/state
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=$dbd
AccountingStoragePass=$folder/socket
AccountingStorageTRES=gres/gpu,gres/gpu:a100
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
MinJobAge=600
NodeName=n1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$node1 CPUs=32 RealMemory=1000 Gres=gpu:a100:8
NodeName=n2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$node2 CPUs=32 RealMemory=1000 Gres=gpu:a100:8
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
touch gpu{0..7}
echo "NodeName=n[1-2] Name=gpu Type=a100 File=$folder/gpu[0-7]" >gres.conf
printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >cgroup.conf
daemon slurmdbd -D
until_ok slurm timeout 5 sacctmgr -n list cluster
slurm sacctmgr -Qi add cluster c >>log/out
daemon slurmctld -D
until_ok slurm timeout 5 sinfo
for node in n1 n2; do daemon slurmd -D -N "$node" -d "$root/usr/sbin/slurmstepd"; done
has_idle_nodes() { [ "$(slurm sinfo -h -o '%D %t')" = "2 idle" ]; }
until_ok has_idle_nodes
# submit ARGUMENT... COMMAND: print the number of a job.
submit() { slurm sbatch --parsable --mem=1 -o /dev/null "${@:1:$#-1}" --wrap "${!#}"; }
until_state() { # JOB STATE
    for _ in $(seq 120); do [ "$(slurm squeue -h -j "$1" -o %T 2>>log/out)" = "$2" ] && return; sleep 0.5; done
    slurm squeue
    exit 1
}
until_done() { until [ -z "$(slurm squeue -h -o %i)" ]; do sleep 1; done; sleep 2; }
