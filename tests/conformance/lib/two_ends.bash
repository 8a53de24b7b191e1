# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Runs programs of two ends and judges what they say. Who sources this sets `logs`, a folder,
# and `seconds`, the longest time for an end.
source "$(dirname -- "${BASH_SOURCE[0]}")/../../../scripts/lib/ports.sh"

: "${logs:=}" "${seconds:=60}"
passed=0
failed=0
server_pid=

end_server() {
    [[ -z $server_pid ]] || kill "$server_pid" 2>/dev/null || true
    server_pid=
}

# text_of FILE: its text in one line, because `rdmabuf` breaks its errors at 80 columns.
text_of() { sed 's/^  *//' "$1" | tr '\n' ' '; }

# verdict NAME FIGURE WHAT-IS-WRONG LOG...: counts, prints, and shows the logs of what failed. Nothing is
# wrong when that is empty.
verdict() {
    local name=$1 figure=$2 wrong=$3 log
    shift 3
    if [[ -z $wrong ]]; then
        passed=$((passed + 1))
        printf 'ok    %s (%s)\n' "$name" "$figure"
        return
    fi
    failed=$((failed + 1))
    printf 'FAIL  %s: %s\n' "$name" "$wrong"
    for log in "$@"; do
        sed "s/^/      ${log##*.}: /" -- "$log"
    done
}

# two_ends NAME LISTENING FIGURE SERVER... -- CLIENT...
# LISTENING is a command that succeeds once the server can be connected to. FIGURE is an awk program that
# prints a figure from what the client says, and nothing if that is not what a run says that did its work.
# Both ends have to exit with 0.
two_ends() {
    local name=$1 listening=$2 figure=$3 server=() client_status=0 server_status=0 value wrong=
    local log=$logs/${1// /-}
    shift 3
    while [[ $1 != -- ]]; do
        server+=("$1")
        shift
    done
    shift

    timeout --kill-after=5 "$seconds" "${server[@]}" >"$log.server" 2>&1 &
    server_pid=$!
    # shellcheck disable=SC2086 # a command and its argument
    if wait_until "$server_pid" $listening; then
        timeout --kill-after=5 "$seconds" "$@" >"$log.client" 2>&1 || client_status=$?
    else
        echo "not started: the server did not listen" >"$log.client"
        client_status=not-started
    fi
    # A server whose client is gone may wait for good.
    [[ $client_status == 0 ]] || kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" || server_status=$?
    server_pid=

    value=$(awk "$figure" "$log.client")
    if [[ $client_status != 0 || $server_status != 0 ]]; then
        wrong="client's status $client_status, server's $server_status"
    elif [[ -z $value ]]; then
        wrong="the client's output is not that of a run that did its work"
    elif grep -qiE 'invalid data|did not match|fail|unable|error' "$log.client" "$log.server"; then
        wrong="an end tells of an error"
    fi
    verdict "$name" "$value" "$wrong" "$log.client" "$log.server"
}

# summary: the last line; the exit status.
summary() {
    echo "$passed passed, $failed failed"
    ((failed == 0 && passed > 0))
}
