# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# build_preset PRESET [TARGET...]
# Configures and builds a preset of CMakePresets.json, or just some of its targets.
build_preset() {
    local preset=$1 targets=()
    shift
    if (($# > 0)); then
        targets=(--target "$@")
    fi
    echo "== build: $preset"
    cmake --preset "$preset" && cmake --build --preset "$preset" "${targets[@]}"
}
