/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * rdmabuf_rig: lets Soft-RoCE import dma-bufs and gives it device memory, so that user space can be
 * tested against the kernel's own uverbs. For test guests only.
 */
#ifndef RDMABUF_RIG_H
#define RDMABUF_RIG_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

/*
 * The last parameters of reg_user_mr_dmabuf; Kbuild finds out which this kernel has. Where it takes a DMA
 * handle (steering hints), reg_user_mr takes one too; rxe has no use for it.
 */
#if defined(RIG_DMABUF_TAKES_DMAH)
#define RIG_DMABUF_PARAMS struct ib_dmah *dmah, struct uverbs_attr_bundle *attrs
#define RIG_DMAH_NULL NULL,
#elif defined(RIG_DMABUF_TAKES_ATTRS)
#define RIG_DMABUF_PARAMS struct uverbs_attr_bundle *attrs
#define RIG_DMAH_NULL
#else
#define RIG_DMABUF_PARAMS struct ib_udata *udata
#define RIG_DMAH_NULL
#endif

#ifndef RIG_HAS_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}
#endif

/* Device memory of one device, in bytes; also reported as max_dm_size. */
#define RIG_DM_CAPACITY (8UL << 20)

/*
 * mmap() of a uverbs file at this offset plus handle * PAGE_SIZE maps the device memory with that
 * handle. rxe hands out its own offsets from zero upwards and never comes near.
 */
#define RIG_DM_MMAP_BASE (1ULL << 40)

/* What the module keeps of one rxe device. Lives from the client's add() to its remove(). */
struct rig_device {
	struct ib_device *ibdev;
	struct ib_device_ops saved; /* rxe's own entries of the operations that are replaced */
	struct mutex dm_lock;       /* protects dms and dm_used */
	struct list_head dms;
	size_t dm_used;
};

struct rig_device *rig_device_of(struct ib_device *ibdev);

/* rxe does no DMA and has no DMA mask; dma-bufs are attached to this device in its stead. */
struct device *rig_importer_device(void);

/*
 * Registers page_offset .. page_offset + length of the given pages through rxe's reg_user_mr.
 * The pages are pinned by the MR; the caller keeps whatever else must outlive it.
 */
struct ib_mr *rig_reg_pages(struct rig_device *rig, struct ib_pd *pd, struct page **pages,
			    unsigned long nr_pages, unsigned long page_offset, u64 length, u64 iova,
			    int access);

extern atomic_t rig_imports;
struct ib_mr *rig_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
				     int access, RIG_DMABUF_PARAMS);
int rig_dereg_imported_mr(struct rig_device *rig, struct ib_mr *mr, struct ib_udata *udata);

extern atomic_t rig_device_memories;
struct ib_dm *rig_alloc_dm(struct ib_device *ibdev, struct ib_ucontext *context,
			   struct ib_dm_alloc_attr *attr, struct uverbs_attr_bundle *attrs);
int rig_dealloc_dm(struct ib_dm *dm, struct uverbs_attr_bundle *attrs);
struct ib_mr *rig_reg_dm_mr(struct ib_pd *pd, struct ib_dm *dm, struct ib_dm_mr_attr *attr,
			    struct uverbs_attr_bundle *attrs);
int rig_dereg_dm_mr(struct rig_device *rig, struct ib_mr *mr);
int rig_mmap(struct ib_ucontext *context, struct vm_area_struct *vma);

#endif
