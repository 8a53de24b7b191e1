/* SPDX-License-Identifier: BSD-3-Clause */
/* Succeeds if the device soft0 can be opened, by a program that is linked with softverbs. */
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    softverbs_hide_real_devices(1);
    struct ibv_device** const devices = ibv_get_device_list(NULL);
    if (devices == NULL || devices[0] == NULL ||
        strcmp(ibv_get_device_name(devices[0]), "soft0") != 0) {
        fprintf(stderr, "the first device is not soft0\n");
        return 1;
    }
    struct ibv_context* const context = ibv_open_device(devices[0]);
    const int status = context == NULL || softverbs_violations() != 0;
    if (context != NULL) {
        ibv_close_device(context);
    }
    ibv_free_device_list(devices);
    return status;
}
