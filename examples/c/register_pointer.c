/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registers a pointer in a program that uses verbs directly: the program opens the device, owns the
 * protection domain, and uses the keys. Here the memory is from malloc(3), and does not begin at a
 * page. The same call registers a pointer of cuMemAlloc() or hipMalloc().
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#include <rdmabuf/rdmabuf.h>

int main(void) {
    const size_t length = 100000;
    struct ibv_device** devices = ibv_get_device_list(NULL);
    struct ibv_context* context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
    struct ibv_pd* pd = context ? ibv_alloc_pd(context) : NULL;
    char* pointer = malloc(length);
    if (pd == NULL || pointer == NULL) {
        fprintf(stderr, "no RDMA device, or no memory\n");
        return 1;
    }

    rdmabuf_resolver* resolver = NULL; /* a program needs only one resolver */
    rdmabuf_region* region = NULL;
    struct rdmabuf_options options = RDMABUF_INIT(options);
    options.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    if (rdmabuf_resolver_create(&resolver) < 0 ||
        rdmabuf_register(resolver, pd, pointer + 5, length - 5, &options, &region) < 0) {
        fprintf(stderr, "%s\n", rdmabuf_last_error());
        return 1;
    }

    const struct ibv_mr* mr = rdmabuf_mr(region, 0);
    printf("%s\nlkey 0x%x, rkey 0x%x, iova 0x%llx\n", rdmabuf_trail(region), mr->lkey, mr->rkey,
           (unsigned long long)rdmabuf_iova(region));

    int failed = rdmabuf_deregister(&region) < 0;
    rdmabuf_resolver_destroy(&resolver);
    free(pointer);
    failed |= ibv_dealloc_pd(pd) != 0 || ibv_close_device(context) != 0;
    ibv_free_device_list(devices);
    return failed;
}
