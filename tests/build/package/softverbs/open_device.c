/* SPDX-License-Identifier: BSD-3-Clause */
/* open_device NAME [no-device-memory]: succeeds if the device exists and can be opened, and has
 * device memory or has none. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
    if (argc < 2) {
        return EXIT_FAILURE;
    }
    struct ibv_device** const devices = ibv_get_device_list(NULL);
    for (int i = 0; devices != NULL && devices[i] != NULL; ++i) {
        struct ibv_device_attr_ex attributes = {0};
        struct ibv_context* const context = strcmp(ibv_get_device_name(devices[i]), argv[1]) == 0
                                                ? ibv_open_device(devices[i])
                                                : NULL;
        if (context != NULL && ibv_query_device_ex(context, NULL, &attributes) == 0) {
            return (attributes.max_dm_size == 0) == (argc > 2) ? EXIT_SUCCESS : EXIT_FAILURE;
        }
    }
    fprintf(stderr, "there is no device %s\n", argv[1]);
    return EXIT_FAILURE;
}
