# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# bash completion for rdmabuf. The subcommands and options are those that --help prints.
_rdmabuf() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words
    local command=("${COMP_WORDS[0]}")
    ((COMP_CWORD == 1)) || command+=("${COMP_WORDS[1]}")
    if [[ $previous == --device ]]; then
        words=$(command ls /sys/class/infiniband 2>/dev/null)
    else
        words=$("${command[@]}" --help 2>/dev/null |
            sed -nE 's/^  (-h,)?(--[a-z-]+).*/\2/p; /^Subcommands:/,/^$/s/^  ([a-z]+) .*/\1/p')
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
# Values of other options are completed as file names.
complete -o default -F _rdmabuf rdmabuf
