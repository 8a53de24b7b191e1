# SPDX-License-Identifier: BSD-3-Clause
# Shared by the rig's scripts; sourced, never run. The caller has set -euo pipefail.

# The rig's own failures. Chosen like env(1) and timeout(1) do: a command in the guest that exits
# 125 itself cannot be told apart by the number, only by the message.
rig_failed=125
usage_error=2

say() { printf 'rig: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit "$rig_failed"
}

usage_die() {
    say "$@"
    say "try --help"
    exit "$usage_error"
}

# require COMMAND:PACKAGE...  Names every missing package at once, so one apt-get run cures it.
require() {
    local pair missing=()
    for pair in "$@"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    ((${#missing[@]} == 0)) ||
        die "these Debian packages are missing: ${missing[*]} (apt-get install ${missing[*]})"
}

cache_dir() {
    local base=${RDMABUF_CACHE_DIR:-}
    if [[ -z $base ]]; then
        [[ -n ${XDG_CACHE_HOME:-}${HOME:-} ]] ||
            die "neither RDMABUF_CACHE_DIR, XDG_CACHE_HOME nor HOME says where to keep the kernel"
        base=${XDG_CACHE_HOME:-$HOME/.cache}/rdmabuf
    fi
    mkdir -p "$base" || die "cannot create the cache directory $base"
    realpath -- "$base"
}

# fingerprint FILE...  Changes when the content or the name of any of the files does.
fingerprint() { sha256sum -- "$@" | sha256sum | cut -c1-16; }

# build_once DIR COMMAND...  Runs COMMAND with an empty directory as its last argument and moves
# that directory to DIR, unless DIR is there already. Safe against concurrent callers and against
# being killed half-way: DIR appears complete or not at all.
build_once() {
    local target=$1 parent lock staging
    shift
    [[ ! -d $target ]] || return 0
    parent=$(dirname -- "$target")
    mkdir -p "$parent"
    exec {lock}>"$target.lock"
    flock "$lock"
    if [[ ! -d $target ]]; then
        staging=$(mktemp -d "$parent/.staging.XXXXXX")
        if ! "$@" "$staging"; then
            rm -rf -- "$staging"
            exec {lock}>&-
            return 1
        fi
        chmod 755 "$staging"
        mv -T -- "$staging" "$target"
    fi
    exec {lock}>&-
}

# The release name of an unpacked kernel tree, from the one kernel image it has.
kernel_release() {
    local tree=$1 images=()
    mapfile -t images < <(find "$tree/boot" -maxdepth 1 -name 'vmlinuz-*' 2>/dev/null)
    ((${#images[@]} == 1)) ||
        die "$tree/boot has ${#images[@]} files vmlinuz-*; the rig wants exactly one"
    printf '%s\n' "${images[0]##*/vmlinuz-}"
}

# Changes when the kernel in the tree does. The image alone decides; hashing it costs 50 ms.
kernel_fingerprint() { sha256sum <"$1/boot/vmlinuz-$2" | cut -c1-16; }
