# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# require_packages FILE...
# Sees to it that the Debian packages listed in the files are installed. Installs what is missing, and
# says so; a machine that has everything is not touched, and the network is not asked.
require_packages() {
    if ! command -v dpkg-query >/dev/null; then
        echo "This is not a Debian: expecting the equivalents of the packages in: $*" >&2
        return 0
    fi

    local wanted package missing=()
    mapfile -t wanted < <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' -- "$@")
    for package in "${wanted[@]}"; do
        if [[ $(dpkg-query -W -f='${db:Status-Status}' -- "$package" 2>/dev/null) != installed ]]; then
            missing+=("$package")
        fi
    done
    if ((${#missing[@]} == 0)); then
        return 0
    fi

    local as_root=()
    if ((EUID != 0)); then
        if ! command -v sudo >/dev/null; then
            echo "Missing packages, and neither root nor sudo to install them. As root, run:" >&2
            echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "Installing ${#missing[@]} missing packages: ${missing[*]}"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "${missing[@]}"
}
