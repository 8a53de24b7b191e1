/* SPDX-License-Identifier: BSD-3-Clause */
/* usage: c_program LIBRDMABUF_C
 *
 * Loads the library, registers a memfd at an address that is not aligned, prints how, and unloads
 * the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdmabuf/rdmabuf.h>

static void* library;

/* Stores the address of a function, without a conversion that ISO C does not have. */
static void find(const char* name, void* function) {
    void* const address = dlsym(library, name);
    if (address == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(function, &address, sizeof address);
}

static void check(int ok, const char* what, const char* reason) {
    if (!ok) {
        fprintf(stderr, "%s failed: %s\n", what, reason);
        exit(1);
    }
}

int main(int argc, char** argv) {
    enum { length = 65536, offset = 5 };
    check(argc == 2, "usage", "c_program LIBRDMABUF_C");
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    check(library != NULL, "dlopen", library == NULL ? dlerror() : "");

    const char* (*last_error)(void);
    int (*create)(rdmabuf_resolver**);
    void (*destroy)(rdmabuf_resolver**);
    int (*add)(rdmabuf_resolver*, const struct rdmabuf_external_memory*, rdmabuf_external**);
    void (*drop)(rdmabuf_external**);
    int (*reg)(rdmabuf_resolver*, struct ibv_pd*, const void*, size_t,
               const struct rdmabuf_options*, rdmabuf_region**);
    struct ibv_mr* (*mr_of)(const rdmabuf_region*, size_t);
    const char* (*trail)(const rdmabuf_region*);
    int (*deregister)(rdmabuf_region**);
    int (*create_cache)(rdmabuf_resolver*, struct ibv_pd* const*, size_t,
                        const struct rdmabuf_cache_options*, rdmabuf_cache**);
    int (*acquire)(rdmabuf_cache*, const void*, size_t, int, struct rdmabuf_keys*, rdmabuf_lease**);
    void (*release)(rdmabuf_lease**);
    void (*destroy_cache)(rdmabuf_cache**);
    find("rdmabuf_last_error", &last_error);
    find("rdmabuf_resolver_create", &create);
    find("rdmabuf_resolver_destroy", &destroy);
    find("rdmabuf_external_add", &add);
    find("rdmabuf_external_remove", &drop);
    find("rdmabuf_register", &reg);
    find("rdmabuf_mr", &mr_of);
    find("rdmabuf_trail", &trail);
    find("rdmabuf_deregister", &deregister);
    find("rdmabuf_cache_create", &create_cache);
    find("rdmabuf_cache_acquire", &acquire);
    find("rdmabuf_lease_release", &release);
    find("rdmabuf_cache_destroy", &destroy_cache);

    int count = 0;
    struct ibv_device** const devices = ibv_get_device_list(&count);
    check(count > 0, "ibv_get_device_list", "no device");
    struct ibv_context* const context = ibv_open_device(devices[0]);
    struct ibv_pd* const pd = ibv_alloc_pd(context);
    const int fd = memfd_create("memory", MFD_CLOEXEC);
    check(pd != NULL && ftruncate(fd, length) == 0, "ibv_alloc_pd or ftruncate", "");
    char* const bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(bytes != MAP_FAILED, "mmap", "");

    rdmabuf_resolver* resolver = NULL;
    rdmabuf_external* external = NULL;
    rdmabuf_region* region = NULL;
    check(create(&resolver) == 0, "rdmabuf_resolver_create", last_error());
    struct rdmabuf_external_memory memory = RDMABUF_INIT(memory);
    memory.address = (uintptr_t)bytes;
    memory.length = length;
    memory.fd = fd;
    check(add(resolver, &memory, &external) == 0, "rdmabuf_external_add", last_error());
    struct rdmabuf_options options = RDMABUF_INIT(options);
    options.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    options.device_memory = 1;
    check(reg(resolver, pd, bytes + offset, 4096, &options, &region) == 0, "rdmabuf_register",
          last_error());
    check(close(fd) == 0, "close", "");
    check(mr_of(region, 0)->length == 4096 && mr_of(region, 1) == NULL, "rdmabuf_mr",
          "a wrong region");
    check(strstr(trail(region), "dmabuf: ") != NULL && strstr(trail(region), "external") != NULL,
          "rdmabuf_trail", trail(region));

    /* The range leaves the memory. */
    rdmabuf_region* none = NULL;
    check(reg(resolver, pd, bytes + offset, length, &options, &none) < 0 && none == NULL,
          "a refusal", "");
    check(strstr(last_error(), "external") != NULL, "rdmabuf_last_error", last_error());

    rdmabuf_cache* cache = NULL;
    rdmabuf_lease* lease = NULL;
    check(create_cache(resolver, &pd, 1, NULL, &cache) == 0, "rdmabuf_cache_create", last_error());
    check(acquire(cache, bytes, 4096, IBV_ACCESS_LOCAL_WRITE, NULL, &lease) == 0,
          "rdmabuf_cache_acquire", last_error());
    release(&lease);
    destroy_cache(&cache);

    check(deregister(&region) == 0 && region == NULL, "rdmabuf_deregister", last_error());
    drop(&external);
    destroy(&resolver);
    check(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd", "something of the library uses it");
    check(ibv_close_device(context) == 0 && dlclose(library) == 0, "dlclose", "");
    check(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL, "unloading", "the library is loaded");

    /* Loading and unloading leaves no memory. */
    const size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 8; ++i) {
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        check(library != NULL && dlclose(library) == 0, "dlopen", "again");
    }
    check(mallinfo2().uordblks < before + 65536, "unloading", "memory is left");
    ibv_free_device_list(devices);
    munmap(bytes, length);
    return 0;
}
