/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdmabuf in C: registers memory of any kind, for programs that have protection domains and queue
 * pairs of their own. The library is librdmabuf_c.so.0, which a program links or loads with
 * dlopen(3).
 *
 *     rdmabuf_resolver *resolver;
 *     rdmabuf_region *region;
 *     if (rdmabuf_resolver_create(&resolver) < 0 ||
 *         rdmabuf_register(resolver, pd, pointer, length, NULL, &region) < 0) {
 *         fprintf(stderr, "%s\n", rdmabuf_last_error());
 *         exit(1);
 *     }
 *     struct ibv_mr *mr = rdmabuf_mr(region, 0);
 *
 * Errors. A function that returns int returns 0 or, if it fails, a negative errno value, unless its
 * comment says otherwise. After a failure, rdmabuf_last_error() returns what was tried, what failed
 * and what to do. Outputs are set only on success. Any such function may fail with
 *   -EINVAL  a required argument is a null pointer, a length or `count` is 0 (rdmabuf_nearest()
 *            permits a `count` of 0), a range exceeds the address space, an option or a flag is
 *            unknown, or `size` of a struct is not set
 *   -ENOMEM  no memory
 *   -EIO     a failure without an errno value
 * and with the errno values of the verbs and of the drivers that it calls. -524 is the kernel's
 * ENOTSUPP, for which <errno.h> has no name.
 *
 * Null handles. A function that destroys, removes or releases an object takes the address of the
 * handle, sets the handle to NULL, and does nothing if the handle is already NULL. For a NULL
 * region, the functions that return a value and not an error return NULL, 0, an empty text or an
 * empty JSON array.
 *
 * Structs. The first member of options and results is `size`, the sizeof of the struct as the
 * program was compiled, so that later versions can add members. The program must set `size`, and
 * must set members that it does not use to zero: RDMABUF_INIT does both. Members of a result that
 * this version of the library does not know keep their values.
 *
 * Ownership. The program owns the objects that the library creates, and must destroy each with the
 * function for its type. Strings and descriptors that the program passes are copied. The program
 * must keep memory and protection domains until the regions and leases that use them have ended,
 * and protection domains also until the caches that use them are destroyed. If a function that
 * returns void cannot deregister memory, it writes one line to stderr.
 *
 * Threads. All functions can be called from several threads, also with the same object, except that
 * an object must not be used while or after it is destroyed. No function throws an exception, and
 * none is a cancellation point of pthread_cancel(3). No function terminates the process, with two
 * exceptions: if the library was loaded with dlopen(3), glibc terminates the process if it cannot
 * allocate the thread-local variables of the library (4 KiB) at the first call in a thread; and a
 * cache terminates the process if a filter of seccomp(2), installed after the first cache was
 * created, refuses membarrier(2). A cache must not be used in a child of fork(2). A program must
 * destroy all objects before it unloads the library.
 */
#ifndef RDMABUF_RDMABUF_H
#define RDMABUF_RDMABUF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_mr;
struct ibv_pd;

/* Finds out whether an address belongs to memory of a GPU or an accelerator, to a dma-buf that the
 * program has added, or to host memory. Loads no vendor's driver that the program has not loaded.
 */
typedef struct rdmabuf_resolver rdmabuf_resolver;
/* Memory that the program has added to a resolver. */
typedef struct rdmabuf_external rdmabuf_external;
/* Memory that is registered on one or several protection domains. */
typedef struct rdmabuf_region rdmabuf_region;
/* Keeps regions registered for later use. */
typedef struct rdmabuf_cache rdmabuf_cache;
/* The right to use a region of a cache. */
typedef struct rdmabuf_lease rdmabuf_lease;

/* The initial value of a struct. For a variable:
 *     struct rdmabuf_options options = RDMABUF_INIT(options);
 * Through a pointer, in C:
 *     *keys = (struct rdmabuf_keys)RDMABUF_INIT(*keys);
 * Through a pointer, in C++:
 *     *keys = RDMABUF_INIT(*keys); */
#ifdef __cplusplus
extern "C++" {
/* The linker keeps only one function of each name. Two libraries of one process can be compiled
 * with headers in which the struct has different sizes. So the name of make() contains the size. */
template <class Struct, size_t Size>
class rdmabuf_initial {
  public:
    static Struct make() {
        Struct initial{};
        initial.size = Size;
        return initial;
    }
};
template <class Struct, size_t Size>
class rdmabuf_initial<const Struct, Size> : public rdmabuf_initial<Struct, Size> {};
template <class Struct, size_t Size>
class rdmabuf_initial<Struct&, Size> : public rdmabuf_initial<Struct, Size> {};
}
#define RDMABUF_INIT(object) (rdmabuf_initial<decltype(object), sizeof(object)>::make())
#else
#define RDMABUF_INIT(object) \
    { .size = sizeof(object) }
#endif

/* Returns the version of the library, "0.1.0". */
const char* rdmabuf_version(void);

/* Returns the text of the last failure in this thread: the call, the errno, what was tried, the
 * cause and a remedy, up to 4,095 bytes. The text is valid until another function of this interface
 * fails in the same thread, or the thread ends. It is empty if no function has failed. */
const char* rdmabuf_last_error(void);

/* Writes the description of an errno value to `text`, with a zero at the end. If `call` is
 * "ibv_reg_dmabuf_mr" or "ibv_reg_mr" (it may be NULL), adds the usual cause of this errno value in
 * that call. `error` may be negative. `text` may be NULL if `size` is 0. Returns the length of the
 * whole text; the text was cut if this length is not less than `size`. */
size_t rdmabuf_explain(int error, const char* call, char* text, size_t size);

/* The mapping with which device memory is exported. */
enum {
    /* The library selects the mapping for the NIC and the memory. */
    RDMABUF_MAPPING_DEFAULT = 0,
    /* The mapping that the driver of the memory selects. */
    RDMABUF_MAPPING_STANDARD = 1,
    /* Over the PCIe link of the device, even if the device has a faster path (for CUDA:
     * CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE). */
    RDMABUF_MAPPING_PCIE = 2
};

/* The kind of memory. */
enum {
    /* Host memory that no driver knows: malloc(3), mmap(2). */
    RDMABUF_KIND_HOST = 0,
    /* Memory of a GPU, an accelerator or another device. */
    RDMABUF_KIND_DEVICE = 2,
    /* Memory whose pages a driver moves between host and device. */
    RDMABUF_KIND_MANAGED = 3,
    /* Host memory that the driver of a device has pinned. */
    RDMABUF_KIND_PINNED_HOST = 4
};

/* ---- Finding and exporting ---- */

/* Creates a resolver that queries the drivers of CUDA, ROCm and Level Zero, if the process has
 * loaded them. Other memory of devices, such as that of Neuron and Habana, is known only after
 * rdmabuf_external_add(). Keep the resolver as long as the program registers memory: creating one
 * is not cheap. */
int rdmabuf_resolver_create(rdmabuf_resolver** resolver);
/* Destroys a resolver. Regions, caches and added memory stay valid. Afterwards rdmabuf_verify()
 * fails with -ENOENT for memory that is not host memory, unless a cache with this resolver exists.
 */
void rdmabuf_resolver_destroy(rdmabuf_resolver** resolver);

/* Memory for which the program has a dma-buf. */
struct rdmabuf_external_memory {
    size_t size;
    /* The address that the program uses for the first byte; must not be 0. `address` and `offset`
     * must be equal modulo the page size. */
    uint64_t address;
    /* The length in bytes. */
    uint64_t length;
    /* The descriptor of the dma-buf. It is duplicated, so the program may close it. If the driver
     * permits only one region for each dma-buf (Neuron; a second registration fails with -EPERM),
     * the program must export the memory once for each NIC, add each descriptor at an `address` of
     * its own, and set `iova` in the options to the same number for all NICs. */
    int fd;
    /* RDMABUF_MAPPING_PCIE if the dma-buf was exported with the PCIe mapping, otherwise 0. */
    int mapping;
    /* The offset of the first byte in the dma-buf, in bytes. */
    uint64_t offset;
    /* The PCI address of the device, "0000:3b:00.0"; may be NULL. */
    const char* pci_address;
};
/* Adds memory to a resolver, and to the caches that were created with the resolver. The program
 * must call rdmabuf_external_remove() before it frees or replaces the memory, and then
 * rdmabuf_cache_invalidate() for each cache without `checked`: otherwise such a cache returns keys
 * of the old memory, also if other memory is added at the same address. If a cache has already
 * registered the memory as host memory, the cache uses that registration until the program
 * invalidates the range.
 * -EBADF: `fd` is not open. -EMFILE: the process has no free descriptor. -ERANGE: the memory ends
 * after the end of the dma-buf. -EEXIST: the memory overlaps memory that was added before. -EINVAL:
 * also if `address` and `offset` differ modulo the page size, or `pci_address` is malformed. */
int rdmabuf_external_add(rdmabuf_resolver* resolver, const struct rdmabuf_external_memory* memory,
                         rdmabuf_external** external);
/* Removes memory from the resolver; the resolver may already be destroyed. Regions of the memory
 * stay registered. */
void rdmabuf_external_remove(rdmabuf_external** external);

/* What rdmabuf_find() has found. */
struct rdmabuf_allocation {
    size_t size;
    /* The first byte of the allocation that contains the address; 0 for RDMABUF_KIND_HOST. */
    uint64_t base;
    /* The length of the allocation in bytes; 0 for RDMABUF_KIND_HOST. */
    uint64_t length;
    /* A number that differs from the numbers of all earlier allocations at this address; 0 if the
     * exporter has no such number. */
    uint64_t generation;
    /* RDMABUF_KIND_... */
    int kind;
    /* 1 if a chip-to-chip link connects the device to its CPU. */
    int c2c;
    /* The name of the exporter that knows the memory: "cuda", "rocm", "level_zero" or "external";
     * empty for RDMABUF_KIND_HOST. */
    char exporter[24];
    /* The PCI address of the device; empty if it is not known. */
    char pci_address[24];
};
/* Finds the allocation that contains `address`. Success with RDMABUF_KIND_HOST means that none of
 * the queried drivers knows the address. An errno value of a driver means that the query of this
 * driver failed: the memory may be device memory. */
int rdmabuf_find(rdmabuf_resolver* resolver, const void* address,
                 struct rdmabuf_allocation* allocation);

/* A dma-buf, for registration functions of other libraries. */
struct rdmabuf_export {
    size_t size;
    /* The program must close this descriptor with close(2), after it has registered the memory. */
    int fd;
    /* RDMABUF_MAPPING_STANDARD or RDMABUF_MAPPING_PCIE. */
    int mapping;
    /* The offset of the address in the dma-buf, in bytes. */
    uint64_t offset;
    uint64_t length;
};
/* Exports `length` bytes at `address`. The address needs no alignment. RDMABUF_MAPPING_DEFAULT is
 * RDMABUF_MAPPING_STANDARD here, because there is no NIC.
 * -EFAULT: host memory, which has no dma-buf. -ERANGE: the range ends after the end of its
 * allocation. -ENOTSUP: the memory does not have this mapping, or is host memory that a GPU's
 * driver has pinned and does not export. Other errno values are those of the driver. */
int rdmabuf_export_range(rdmabuf_resolver* resolver, const void* address, size_t length,
                         int mapping, struct rdmabuf_export* range);

/* ---- Registering ---- */

/* Returns 0 if the NIC of `pd`, its user-space driver and this kernel can register dma-bufs. The
 * exporter of a dma-buf can still refuse the NIC.
 * -EOPNOTSUPP: they cannot, or have given no clear answer; rdmabuf_last_error() says what is
 * missing, or which errno they returned. */
int rdmabuf_supports_dmabuf(struct ibv_pd* pd);

/* The methods to register memory; combine them with `|`. */
enum {
    /* A dma-buf, by ibv_reg_dmabuf_mr(3). For device memory, if the other dma-buf path is not
     * listed and `mapping` is 0, mlx5dv_reg_dmabuf_mr(3) is tried, too (not on EFA): before
     * ibv_reg_dmabuf_mr(3) if `paths` is 0 and the NIC has a data-direct function, otherwise after
     * it. */
    RDMABUF_PATH_DMABUF = 1,
    /* A dma-buf, with the PCIe mapping if the exporter has one, by mlx5dv_reg_dmabuf_mr(3). If
     * RDMABUF_PATH_DMABUF is not listed and `mapping` is 0, ibv_reg_dmabuf_mr(3) is tried
     * afterwards for device memory. */
    RDMABUF_PATH_DMABUF_DATA_DIRECT = 2,
    /* A device address, by ibv_reg_mr(3) with a kernel module for peer memory (nvidia_peermem). */
    RDMABUF_PATH_PEERMEM = 4,
    /* Host memory, by ibv_reg_mr(3). */
    RDMABUF_PATH_HOST = 8,
    /* Managed or host memory, by ibv_reg_mr(3) with IBV_ACCESS_ON_DEMAND: no page is pinned. */
    RDMABUF_PATH_ON_DEMAND = 16
};

struct rdmabuf_options {
    size_t size;
    /* IBV_ACCESS_... of <infiniband/verbs.h>; 0 is IBV_ACCESS_LOCAL_WRITE. */
    int access;
    /* 1 adds IBV_ACCESS_RELAXED_ORDERING, if the kernel supports it. */
    int relaxed_ordering;
    /* 1 if the memory must be that of a device: host and managed memory are refused with -EFAULT.
     */
    int device_memory;
    /* The paths that may be tried, in the order of their values. 0: dmabuf, then on_demand for
     * managed memory or host for other memory; only dmabuf if `device_memory` is 1. Memory that a
     * driver or rdmabuf_external_add() has described as device memory is never registered by the
     * path host. */
    int paths;
    /* RDMABUF_MAPPING_...; with 0, the library selects the mapping for each NIC. */
    int mapping;
    /* 1 if `iova` is used. */
    int has_iova;
    /* The address of the first byte for work requests and peers; by default the registered
     * `address`, or 0 with IBV_ACCESS_ZERO_BASED. Modulo the page size, `iova` must be equal to
     * `address`; on the dma-buf paths, to the offset of the first byte in the dma-buf instead. */
    uint64_t iova;
};

/* Registers `length` bytes at `address` with `pd`. The address needs no alignment. `options` may be
 * NULL. If no path succeeds, the errno is that of the first failed call of a driver or verbs; for
 * memory that is not device memory, a call without a dma-buf has priority.
 * rdmabuf_last_error() then returns the attempts; rdmabuf_explain() describes the errno values.
 * -EFAULT: the address is not mapped, or the memory is not that of a device although
 * `device_memory` is 1. -ERANGE: the range ends after the end of its allocation. -EPERM: device
 * memory, but `paths` has only paths for host memory; or the range begins in host memory, and
 * contains device memory. -EOPNOTSUPP, -EPROTONOSUPPORT, -524: the NIC, the kernel or the
 * driver cannot register such memory. */
int rdmabuf_register(rdmabuf_resolver* resolver, struct ibv_pd* pd, const void* address,
                     size_t length, const struct rdmabuf_options* options, rdmabuf_region** region);
/* Registers with `count` protection domains, for example of several NICs: with all of them or with
 * none. All dma-buf descriptors are closed before the function returns, also after an error. The
 * array `pds` is not kept. For 1 MiB or more, the NICs register at the same time, in threads that
 * end before the function returns. */
int rdmabuf_register_many(rdmabuf_resolver* resolver, struct ibv_pd* const* pds, size_t count,
                          const void* address, size_t length, const struct rdmabuf_options* options,
                          rdmabuf_region** region);

/* Returns the ibv_mr on protection domain `i`, in the order of `pds`; NULL if `i` is too large, or
 * if a failed rdmabuf_deregister() has already deregistered it. The rdmabuf_region owns the ibv_mr:
 * do not call ibv_dereg_mr(). Use its lkey and rkey. Use rdmabuf_iova() instead of its `addr`,
 * which is not the address of the memory if a dma-buf was registered. */
struct ibv_mr* rdmabuf_mr(const rdmabuf_region* region, size_t i);
/* Returns the address of the first byte for work requests and peers. */
uint64_t rdmabuf_iova(const rdmabuf_region* region);
/* Returns the RDMABUF_PATH_... by which protection domain `i` was registered; 0 if rdmabuf_mr() is
 * NULL. */
int rdmabuf_path(const rdmabuf_region* region, size_t i);
/* Returns the attempts to register the memory, as a text or as a JSON array of objects with the
 * members path, call, errno, device, exporter, meaning and remedy. The text is valid as long as the
 * region. */
const char* rdmabuf_trail(const rdmabuf_region* region);
const char* rdmabuf_trail_json(const rdmabuf_region* region);
/* Asks the driver whether the allocation that was registered still exists. Do not call this on the
 * data path. Returns 0 if it exists, and always for host memory. For an allocation without a
 * generation (see rdmabuf_find()), only freed memory is detected, not replaced memory. A lease
 * cannot be verified: call rdmabuf_cache_invalidate(), and acquire a new lease.
 * -ENODEV: the memory was freed, replaced or removed from the resolver, so its keys must not be
 * used. -ENOENT: the resolver was destroyed. Other values, for example -EIO: the query failed. */
int rdmabuf_verify(rdmabuf_region* region);
/* Deregisters the memory and destroys the region. Calls no driver of a vendor. After an error, the
 * region and its handle still exist, and the program must call this function again; the memory may
 * already be deregistered on some protection domains, for which rdmabuf_mr() returns NULL. -EBUSY:
 * memory windows are bound to the region. */
int rdmabuf_deregister(rdmabuf_region** region);

/* ---- Keeping registrations ---- */

struct rdmabuf_cache_options {
    size_t size;
    /* 1: each use asks the driver whether the memory was replaced. Memory for which this cannot be
     * checked (host memory that no driver knows, memory without a generation, a range of more than
     * one allocation) is registered for each lease and deregistered when the lease ends. 0: the
     * program must call rdmabuf_cache_invalidate() before memory is freed, and when it removes or
     * replaces memory of rdmabuf_external_add(). */
    int checked;
    /* Must be 0. */
    int reserved;
    /* The maximum number of regions; 0: 65,536. */
    size_t max_regions;
    /* The maximum total length of the regions in bytes; 0: no limit. */
    uint64_t max_bytes;
    /* The options of all registrations; `access` and `iova` are not used. May be NULL. */
    const struct rdmabuf_options* registration;
};
/* Creates a cache of registrations with all of `count` protection domains. `options` may be NULL.
 * Neither `pds` nor `options` is kept. */
int rdmabuf_cache_create(rdmabuf_resolver* resolver, struct ibv_pd* const* pds, size_t count,
                         const struct rdmabuf_cache_options* options, rdmabuf_cache** cache);
/* Destroys a cache. Leases stay valid. */
void rdmabuf_cache_destroy(rdmabuf_cache** cache);

/* Keys for a range of memory. */
struct rdmabuf_keys {
    size_t size;
    uint32_t lkey;
    uint32_t rkey;
    /* The first byte of the registered range, which contains the requested range. A peer that has
     * `rkey` can access the whole registered range, with all accesses of the registration, which
     * may be more than were requested. The iova of a byte is its address. */
    uint64_t address;
    /* The length of the registered range in bytes. */
    uint64_t length;
};
/* Returns a lease on a region that contains the range and permits `access` (IBV_ACCESS_...; with 0,
 * the NIC only reads the memory, for sends and writes to peers). If there is no such region,
 * registers the range, with the errors of rdmabuf_register(). `keys` receives the keys on the first
 * protection domain, and may be NULL. -EAGAIN: the range was invalidated during each of 16
 * registrations. */
int rdmabuf_cache_acquire(rdmabuf_cache* cache, const void* address, size_t length, int access,
                          struct rdmabuf_keys* keys, rdmabuf_lease** lease);
/* Returns the keys on protection domain `i`. */
int rdmabuf_lease_keys(const rdmabuf_lease* lease, size_t i, struct rdmabuf_keys* keys);
/* Ends a lease, in any thread, also after its cache was destroyed. */
void rdmabuf_lease_release(rdmabuf_lease** lease);
/* Declares that a range was freed or will be freed. Deregisters all regions that overlap the range
 * and have no lease. Regions with a lease are deregistered when their last lease ends, and are not
 * used for new leases. A hook of munmap(2) may call this function, but must not hold a lock of the
 * allocator. A hook must not invalidate several caches that several threads use, because two
 * threads could wait for each other. Does nothing in a child of fork(2). */
void rdmabuf_cache_invalidate(rdmabuf_cache* cache, const void* address, size_t length);

struct rdmabuf_statistics {
    size_t size;
    /* The number of rdmabuf_cache_acquire() calls that found a region. */
    uint64_t hits;
    /* The number of rdmabuf_cache_acquire() calls that found no region. */
    uint64_t misses;
    /* The number of regions that were removed because of a limit or after ENOMEM. */
    uint64_t evictions;
    /* With `checked`: regions that were removed because their memory was freed or replaced. */
    uint64_t stale;
    /* The number of regions that rdmabuf_cache_invalidate() removed. */
    uint64_t invalidations;
    /* The number of regions now. It includes registrations in progress, but not regions that are
     * being deregistered. */
    uint64_t regions;
    /* The total length of these regions in bytes, on one protection domain. */
    uint64_t bytes;
};
int rdmabuf_cache_statistics(const rdmabuf_cache* cache, struct rdmabuf_statistics* statistics);

/* ---- Devices and visibility ---- */

/* Writes the names of the RDMA devices, the nearest to the memory first, to `names`, which has room
 * for `count` names. Returns the number of devices of the machine, which may be more than `count`
 * or 0, or a negative errno value. Each call reads sysfs.
 * `names` may be NULL if `count` is 0. */
int rdmabuf_nearest(rdmabuf_resolver* resolver, const void* address, char names[][64],
                    size_t count);

/* Makes RDMA writes that have completed visible to work that is submitted to the GPU afterwards.
 * Returns 0 if the writes were flushed, 1 if no flush is needed (host memory, or a GPU that orders
 * the writes of each NIC; writes of NICs with different mappings are not ordered), or a negative
 * errno value. -EOPNOTSUPP: the device supports no flush; read the last bytes back through the NIC.
 */
int rdmabuf_flush(rdmabuf_resolver* resolver, const void* address);

#ifdef __cplusplus
}
#endif

#endif
