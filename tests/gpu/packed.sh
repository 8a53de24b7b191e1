# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# packed_libraries FOLDER: the library path for the programs of a folder that tests/gpu/run --pack has made. The packed
# C++ library is on it only where the machine's own is too old for them: drivers of this machine need its own.
packed_libraries() {
    local folder=$1
    if LD_LIBRARY_PATH=$folder/lib ldd "$folder/bin/gpu_test" 2>&1 | grep -q 'not found'; then
        echo "$folder/lib:$folder/lib/c++"
    else
        echo "$folder/lib"
    fi
}
