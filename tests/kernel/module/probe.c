// SPDX-License-Identifier: GPL-2.0-only
/*
 * Not part of the module: Kbuild compiles this file once for each macro, to find out which variant of an
 * interface the kernel's headers declare.
 */
#include <linux/module.h>
#include <rdma/ib_verbs.h>

#ifdef RIG_DMABUF_TAKES_DMAH
/* A DMA handle (steering hints) and the attributes; in mainline since 6.17. */
static struct ib_mr *reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
					int access, struct ib_dmah *dmah,
					struct uverbs_attr_bundle *attrs)
{
	return NULL;
}
const struct ib_device_ops probe = { .reg_user_mr_dmabuf = reg_user_mr_dmabuf };
#endif

#ifdef RIG_DMABUF_TAKES_ATTRS
/* The attributes, and no DMA handle. */
static struct ib_mr *reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
					int access, struct uverbs_attr_bundle *attrs)
{
	return NULL;
}
const struct ib_device_ops probe = { .reg_user_mr_dmabuf = reg_user_mr_dmabuf };
#endif

#ifdef RIG_NAMESPACE_IS_IDENTIFIER
/* In mainline the namespace is a string since 6.13. */
MODULE_IMPORT_NS(DMA_BUF);
#endif

#ifdef RIG_HAS_VM_FLAGS_SET
/* In mainline since 6.3; before, vm_flags is assigned. */
#include <linux/mm.h>
static inline void probe(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_IO);
}
#endif
