# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# For programs that know nothing of softverbs: runs them with it preloaded. To be sourced with the script's
# arguments, of which the first is the library.
# shellcheck disable=SC2034 # who sources this uses what it sets
source "$(dirname -- "${BASH_SOURCE[0]}")/two_ends.bash"

missing=77 # the exit status of a test that lacks something

library=$(realpath -- "${1:?the path of libsoftverbs.so}")
device=soft0
address=127.0.0.1
seconds=120 # for each end of each program
scratch=$(mktemp -d)
logs=$scratch/logs
mkdir -m 700 "$logs" "$scratch/rendezvous"

clean_up() {
    end_server
    rm -rf -- "$scratch"
}
trap clean_up EXIT

# Nothing of the caller's settings, and a place of its own to meet.
unset "${!SOFTVERBS_@}"
# In front of a program; variables of the environment may stand between.
preloaded=(env "LD_PRELOAD=$library" "SOFTVERBS_DIR=$scratch/rendezvous")

# require PROGRAM PACKAGE
require() {
    command -v "$1" >/dev/null || {
        echo "skipped: there is no $1; it is in the package $2"
        exit "$missing"
    }
}

# one_end NAME FIGURE COMMAND...: a program that needs no other.
one_end() {
    local name=$1 figure=$2 log=$logs/${1// /-} status=0 value wrong=
    shift 2
    timeout --kill-after=5 "$seconds" "$@" >"$log.output" 2>&1 || status=$?
    value=$(awk "$figure" "$log.output")
    if ((status != 0)); then
        wrong="status $status"
    elif [[ -z $value ]]; then
        wrong="the output is not what it has to be"
    fi
    verdict "$name" "$value" "$wrong" "$log.output"
}

# nothing_left: programs that ended have taken their sockets and locks with them.
nothing_left() {
    local left
    left=$(ls -A --ignore=sysfs -- "$scratch/rendezvous")
    verdict "nothing is left behind" "the rendezvous directory is empty" "${left:+left: $left}"
}
