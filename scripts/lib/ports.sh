# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# tcp_listening PORT: whether somebody of this network namespace accepts connections there.
tcp_listening() {
    grep -qsE "^ *[0-9]+: [0-9A-F]+:$(printf '%04X' "$1") [0-9A-F]+:0000 0A " \
        /proc/net/tcp /proc/net/tcp6
}

# free_port: prints a port that nobody listens at, below those that the kernel gives out itself.
free_port() {
    local port
    for (( ; ; )); do
        port=$((15000 + RANDOM % 16000))
        tcp_listening "$port" || break
    done
    echo "$port"
}

# wait_until PID COMMAND...: until the command succeeds. Fails when the process is gone before, or
# after 20 seconds.
wait_until() {
    local pid=$1 tries
    shift
    for ((tries = 0; tries < 400; tries++)); do
        ! "$@" || return 0
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}
