/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens soft0 and lets one registration of memory fail, by <softverbs/softverbs.h>. */
#include <errno.h>
#include <softverbs/softverbs.h>
#include <stdio.h>
#include <stdlib.h>

static void require(int holds, const char* what) {
    if (!holds) {
        fprintf(stderr, "failed: %s\n", what);
        exit(EXIT_FAILURE);
    }
}

int main(void) {
    static char memory[4096];
    softverbs_hide_real_devices(1);
    struct ibv_device** const devices = ibv_get_device_list(NULL);
    require(devices != NULL && devices[0] != NULL, "there is a device");
    struct ibv_context* const context = ibv_open_device(devices[0]);
    require(context != NULL, "the device can be opened");
    struct ibv_pd* const pd = ibv_alloc_pd(context);
    require(pd != NULL, "a protection domain can be allocated");

    require(softverbs_fail_call("ibv_reg_mr", 1, ENOMEM) == 0, "a fault can be planned");
    errno = 0;
    require(ibv_reg_mr(pd, memory, sizeof memory, 0) == NULL && errno == ENOMEM,
            "the planned fault happens");
    struct ibv_mr* const mr = ibv_reg_mr(pd, memory, sizeof memory, 0);
    require(mr != NULL && softverbs_live(SOFTVERBS_MR) == 1, "the next registration succeeds");

    require(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0,
            "everything can be destroyed");
    ibv_free_device_list(devices);
    require(softverbs_violations() == 0, "verbs were used correctly");
    return EXIT_SUCCESS;
}
