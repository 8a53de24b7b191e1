# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# "Hosts" for tests: network namespaces on one switch, each with its own rendezvous directory. To be sourced
# with the script's arguments, of which the first is the library.
# shellcheck disable=SC2034,SC2119,SC2120 # scripts that source this file use its variables; on_hosts has arguments of its own
# shellcheck source=tests/conformance/lib/softverbs.bash
source "$(dirname -- "${BASH_SOURCE[0]}")/softverbs.bash"

namespace=svt$$ # of the switch; the hosts have this and h1, h2, …
hosts=0
secret=$scratch/secret
(umask 077 && head -c 32 /dev/urandom >"$secret")

remove_hosts() {
    local name pids
    set +e # a process may end before it is killed
    for name in "$namespace"h{1..4} "$namespace"; do
        [[ -e /run/netns/$name ]] || continue
        pids=$(ip netns pids "$name")
        # shellcheck disable=SC2086 # a list; only processes of this test are in its namespaces
        [[ -z $pids ]] || kill -KILL $pids 2>/dev/null
        ip netns del "$name"
    done
    clean_up
}
trap remove_hosts EXIT

# make_hosts NUMBER: hosts 1, 2, … with the addresses 10.77.0.1, … and fd77::1, …
make_hosts() {
    local host name reason
    if ! reason=$(ip netns add "$namespace" 2>&1 && ip -n "$namespace" link add switch type bridge 2>&1); then
        echo "skipped: network namespaces with a bridge cannot be made: $reason"
        exit "$missing"
    fi
    ip -n "$namespace" link set switch up
    for ((host = 1; host <= $1; host++)); do
        name=${namespace}h$host
        ip netns add "$name"
        ip -n "$name" link add wire type veth peer name "wire$host" netns "$namespace"
        ip -n "$name" addr add "10.77.0.$host/24" dev wire
        ip -n "$name" addr add "fd77::$host/64" dev wire nodad
        ip -n "$name" link set lo up
        ip -n "$name" link set wire up
        ip -n "$namespace" link set "wire$host" master switch up
        mkdir -m 700 "$scratch/host$host"
    done
    hosts=$1
    on_hosts
}

# on_hosts [VARIABLE=VALUE...]: sets host1, host2, …, to be put in front of a command. The port is below
# those that the kernel gives out itself, and above those of free_port.
on_hosts() {
    local host
    for ((host = 1; host <= hosts; host++)); do
        declare -g -a "host$host=(ip netns exec ${namespace}h$host env LD_PRELOAD=$library
            SOFTVERBS_DIR=$scratch/host$host SOFTVERBS_NETWORK=unprotected-tcp SOFTVERBS_SECRET_FILE=$secret
            SOFTVERBS_PORT=30700 $*)"
    done
}

# host_listening HOST PORT: whether a program of the host accepts connections there.
host_listening() {
    ip netns exec "${namespace}h$1" grep -qsE \
        "^ *[0-9]+: [0-9A-F]+:$(printf '%04X' "$2") [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6
}

# received HOST: how many bytes have arrived at a host. has_received HOST BYTES: whether more than these have.
received() { ip netns exec "${namespace}h$1" awk '$1 == "wire:" { print $2 }' /proc/net/dev; }
has_received() { (($(received "$1") > $2)); }

# reachable HOST FROM: whether packets of another host reach a host, which refuses a connection.
reachable() {
    [[ $(ip netns exec "${namespace}h$2" timeout 1 bash -c ": </dev/tcp/10.77.0.$1/9" 2>&1) == *refused* ]]
}

# is_stopped PID: whether all threads of a process are stopped.
is_stopped() { ! grep -hs '^State:' "/proc/$1/task/"*/status | grep -qv 'T (stopped)'; }

# queued HOST: whether bytes wait for a process of the host, which does not read them.
queued() {
    ip netns exec "${namespace}h$1" awk '$4 == "01" && $5 !~ /:00000000$/ { found = 1 } END { exit !found }' /proc/net/tcp
}

# cut HOST, mend HOST: the cable between a host and the switch.
cut() { ip -n "$namespace" link set "wire$1" down; }
mend() { ip -n "$namespace" link set "wire$1" up; }

# nothing_left_on_hosts: programs that ended have taken their sockets and locks with them.
nothing_left_on_hosts() {
    local host left
    for ((host = 1; host <= hosts; host++)); do
        left=$(find "$scratch/host$host" -name '*.lock' -o -name '*.sock')
        verdict "nothing is left behind on host $host" "no locks, no sockets" \
            "${left:+left: $left}"
    done
}
