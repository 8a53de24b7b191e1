# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Runs subcommands of `rdmabuf` and checks what they print. Who sources this has sourced conformance/lib/two_ends.bash, and
# sets `program`; `log`, a file; and the arrays `preloaded` and `environment`, which stand in front of the program.
# shellcheck disable=SC2154 # who sources this sets the arrays
: "${program:=}" "${log:=}" "${seconds:=60}"

# run STATUS ARGUMENT...: sets `wrong` to the differences between the run and what is expected. stdout is in $log,
# stderr in $log.errors.
run() {
    local expected=$1 status=0
    shift
    wrong=
    timeout --kill-after=5 "$seconds" "${preloaded[@]}" "${environment[@]}" "$program" "$@" >"$log" 2>"$log.errors" || status=$?
    ((status == expected)) || wrong="status $status in place of $expected"
    [[ ! -s $log.errors ]] || wrong+=" text on stderr"
}

# prints STATUS TEXT ARGUMENT...: the output for people has the text, lines of at most 80 columns and no colours.
prints() {
    local expected=$1 text=$2
    shift 2
    run "$expected" "$@"
    grep -qF -- "$text" "$log" || wrong+=" no '$text'"
    awk 'length > 80 { exit 1 }' "$log" || wrong+=" a line with more than 80 columns"
    grep -q $'\x1b' "$log" && wrong+=" an escape sequence"
    verdict "${environment[*]} rdmabuf $*" "status $expected, $(wc -l <"$log") lines" "$wrong" "$log" "$log.errors"
}

# fails STATUS TEXT ARGUMENT...: stderr has the text.
fails() {
    local expected=$1 text=$2
    shift 2
    run "$expected" "$@"
    wrong=${wrong/ text on stderr/}
    [[ $(text_of "$log.errors") == *"$text"* ]] || wrong+=" no '$text'"
    verdict "${environment[*]} rdmabuf $*" "status $expected" "$wrong" "$log" "$log.errors"
}

# json STATUS FILTER ARGUMENT...: with --json, stdout is one JSON object for which the filter of jq is true.
json() {
    local expected=$1 filter=$2
    shift 2
    run "$expected" "$@" --json
    jq --slurp --exit-status "length == 1 and (.[0] | $filter)" "$log" >/dev/null 2>"$log.jq" || wrong+=" not $filter"
    verdict "${environment[*]} rdmabuf $* --json" "status $expected" "$wrong" "$log" "$log.errors" "$log.jq"
}
