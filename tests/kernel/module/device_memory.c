// SPDX-License-Identifier: GPL-2.0-only
/*
 * Device memory for a device that has none: pages which user space reaches through verbs only
 * (alloc_dm, reg_dm_mr) and through a mapping made by the user-space driver.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "rig.h"

#define RIG_DM_ACCESS                                                                              \
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |                  \
	 IB_ACCESS_REMOTE_ATOMIC | IB_ZERO_BASED)

struct rig_dm {
	struct ib_dm ibdm;
	struct list_head node; /* in rig_device.dms */
	struct ib_ucontext *context;
	u32 handle; /* user space's name of it within context */
	unsigned long nr_pages;
	struct page *pages[];
};

/*
 * What uverbs holds for an MR on device memory. uverbs types such an MR IB_MR_TYPE_DM, and rxe
 * refuses to move data through a type it does not know; so rxe's own MR stays behind this one.
 */
struct rig_dm_mr {
	struct ib_mr ibmr;
	struct ib_mr *backing;
};

atomic_t rig_device_memories = ATOMIC_INIT(0);

static void dm_free(struct rig_dm *dm)
{
	unsigned long i;

	for (i = 0; i < dm->nr_pages; i++)
		if (dm->pages[i])
			__free_page(dm->pages[i]);
	kfree(dm);
}

static struct rig_dm *dm_create(unsigned long nr_pages)
{
	struct rig_dm *dm = kzalloc(struct_size(dm, pages, nr_pages), GFP_KERNEL);
	unsigned long i;

	if (!dm)
		return NULL;
	dm->nr_pages = nr_pages;
	for (i = 0; i < nr_pages; i++) {
		dm->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!dm->pages[i]) {
			dm_free(dm);
			return NULL;
		}
	}
	return dm;
}

static bool dm_reserve(struct rig_device *rig, size_t size)
{
	bool fits;

	mutex_lock(&rig->dm_lock);
	fits = size <= RIG_DM_CAPACITY - rig->dm_used;
	if (fits)
		rig->dm_used += size;
	mutex_unlock(&rig->dm_lock);
	return fits;
}

static void dm_unreserve(struct rig_device *rig, size_t size)
{
	mutex_lock(&rig->dm_lock);
	rig->dm_used -= size;
	mutex_unlock(&rig->dm_lock);
}

struct ib_dm *rig_alloc_dm(struct ib_device *ibdev, struct ib_ucontext *context,
			   struct ib_dm_alloc_attr *attr, struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobject = uverbs_attr_get_uobject(attrs, UVERBS_ATTR_ALLOC_DM_HANDLE);
	struct rig_device *rig = rig_device_of(ibdev);
	struct rig_dm *dm;
	size_t size;

	if (IS_ERR(uobject))
		return ERR_CAST(uobject);
	/* Every allocation starts at a page, which satisfies any smaller alignment. */
	if (!attr->length || attr->alignment > PAGE_SHIFT)
		return ERR_PTR(-EINVAL);
	if (attr->length > RIG_DM_CAPACITY)
		return ERR_PTR(-ENOMEM);

	size = PAGE_ALIGN(attr->length);
	if (!dm_reserve(rig, size))
		return ERR_PTR(-ENOMEM);
	dm = dm_create(size >> PAGE_SHIFT);
	if (!dm) {
		dm_unreserve(rig, size);
		return ERR_PTR(-ENOMEM);
	}
	dm->context = context;
	dm->handle = uobject->id;

	mutex_lock(&rig->dm_lock);
	list_add(&dm->node, &rig->dms);
	mutex_unlock(&rig->dm_lock);
	atomic_inc(&rig_device_memories);
	return &dm->ibdm;
}

/* The core has made sure that no MR uses it any more; until then it answers EBUSY. */
int rig_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	struct rig_device *rig = rig_device_of(ibdm->device);
	struct rig_dm *dm = container_of(ibdm, struct rig_dm, ibdm);

	mutex_lock(&rig->dm_lock);
	list_del(&dm->node);
	rig->dm_used -= dm->nr_pages << PAGE_SHIFT;
	mutex_unlock(&rig->dm_lock);
	dm_free(dm);
	atomic_dec(&rig_device_memories);
	return 0;
}

struct ib_mr *rig_reg_dm_mr(struct ib_pd *pd, struct ib_dm *ibdm, struct ib_dm_mr_attr *attr,
			    struct uverbs_attr_bundle *attrs)
{
	struct rig_device *rig = rig_device_of(pd->device);
	struct rig_dm *dm = container_of(ibdm, struct rig_dm, ibdm);
	struct rig_dm_mr *mr;

	/*
	 * The core has checked the range and the zero base. rxe wants address and iova to agree
	 * below the page size; the iova is 0.
	 */
	if (attr->access_flags & ~RIG_DM_ACCESS || !attr->length || offset_in_page(attr->offset))
		return ERR_PTR(-EINVAL);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->backing = rig_reg_pages(rig, pd, dm->pages + (attr->offset >> PAGE_SHIFT),
				    PAGE_ALIGN(attr->length) >> PAGE_SHIFT, 0, attr->length, 0,
				    attr->access_flags & ~IB_ZERO_BASED);
	if (IS_ERR(mr->backing)) {
		struct ib_mr *err = mr->backing;

		kfree(mr);
		return err;
	}
	mr->ibmr.lkey = mr->backing->lkey;
	mr->ibmr.rkey = mr->backing->rkey;
	mr->ibmr.length = attr->length;
	return &mr->ibmr;
}

int rig_dereg_dm_mr(struct rig_device *rig, struct ib_mr *ibmr)
{
	struct rig_dm_mr *mr = container_of(ibmr, struct rig_dm_mr, ibmr);
	int ret = rig->saved.dereg_mr(mr->backing, NULL);

	if (!ret)
		kfree(mr);
	return ret;
}

static int dm_map(struct rig_device *rig, struct ib_ucontext *context, u32 handle,
		  struct vm_area_struct *vma)
{
	unsigned long left = vma_pages(vma);
	int ret = -EINVAL;
	struct rig_dm *dm;

	mutex_lock(&rig->dm_lock);
	list_for_each_entry(dm, &rig->dms, node) {
		if (dm->context != context || dm->handle != handle)
			continue;
		if (left <= dm->nr_pages)
			ret = vm_insert_pages(vma, vma->vm_start, dm->pages, &left);
		break;
	}
	mutex_unlock(&rig->dm_lock);
	return ret;
}

int rig_mmap(struct ib_ucontext *context, struct vm_area_struct *vma)
{
	struct rig_device *rig = rig_device_of(context->device);
	const unsigned long base = RIG_DM_MMAP_BASE >> PAGE_SHIFT;

	if (vma->vm_pgoff < base)
		return rig->saved.mmap(context, vma);
	if (!(vma->vm_flags & VM_SHARED) || vma->vm_pgoff - base > U32_MAX)
		return -EINVAL;
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	return dm_map(rig, context, vma->vm_pgoff - base, vma);
}
