# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# Removes from the environment what would decide which tests run, what they find, or how they are compiled.
forget_environment() {
    local prefix
    for prefix in GTEST ASAN LSAN TSAN UBSAN SOFTVERBS NCCL UCX RDMABUF_NCCL; do
        # The names of all variables that begin so.
        eval "unset \"\${!${prefix}_@}\""
    done
    unset CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS
}

# use_build_folders
# Refuses a checkout whose path the tests cannot use, then waits until no other script uses the build folders of this one.
# The script, with its children, uses them until it ends.
use_build_folders() {
    if [[ $PWD =~ [[:space:]:\;\"\'\\\$] ]]; then
        echo "$0: cannot run in $PWD: the tests put this path into LD_PRELOAD, lists of CMake and commands of a shell, so it" \
            "may have no space, no quote and none of : ; \\ \$. Move the checkout." >&2
        exit 2
    fi
    # It was called by a script that uses them already.
    [[ ${RDMABUF_USED_CHECKOUT-} != "$PWD" ]] || return 0
    local lock
    mkdir -p build
    exec {lock}<>build/lock
    if ! flock --nonblock "$lock"; then
        echo "$0: waiting for $(<build/lock), which uses the build folders of this checkout" >&2
        flock "$lock"
    fi
    echo "process $$, $0" >build/lock
    export RDMABUF_USED_CHECKOUT=$PWD
}

# build_preset PRESET [TARGET...]
# Configures and builds a preset of CMakePresets.json, or just some of its targets: with the options of the preset alone,
# whatever the build folder was configured with before. Where there is ccache it is used, and what it keeps serves every
# clone of the repository.
build_preset() {
    local preset=$1 targets=() options=()
    shift
    if command -v ccache >/dev/null; then
        export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
        # Without these, ccache keeps no result of a file that uses a precompiled header.
        export CCACHE_SLOPPINESS=pch_defines,time_macros
        options=(-D CMAKE_C_COMPILER_LAUNCHER=ccache -D CMAKE_CXX_COMPILER_LAUNCHER=ccache)
    fi
    if (($# > 0)); then
        targets=(--target "$@")
    fi
    if [[ $preset == release ]]; then
        options+=(-D CMAKE_C_COMPILER=gcc -D CMAKE_CXX_COMPILER=g++)
        # The tests make Debian packages of this build, so its libraries are installed in Debian's directory.
        if command -v dpkg-architecture >/dev/null; then
            options+=(-D "CMAKE_INSTALL_LIBDIR=lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)")
        fi
    fi
    echo "== build: $preset"
    cmake --fresh --preset "$preset" "${options[@]}" && cmake --build --preset "$preset" "${targets[@]}"
}
