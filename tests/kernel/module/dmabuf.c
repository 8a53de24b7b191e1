// SPDX-License-Identifier: GPL-2.0-only
/*
 * Importing dma-bufs: attach, map (which pins, as the attachment is not a dynamic one), register
 * the pages. The attachment lasts until the MR is deregistered.
 */
#include <linux/dma-buf.h>
#include <linux/hashtable.h>
#include <linux/overflow.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "rig.h"

struct rig_import {
	struct hlist_node node;
	struct ib_mr *mr;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;
	struct sg_table *sgt;
};

/* By the MR's address. A table of ours, as rxe's struct has no room for a driver's data. */
static DEFINE_HASHTABLE(imports, 8);
static DEFINE_SPINLOCK(imports_lock);
atomic_t rig_imports = ATOMIC_INIT(0);

static void import_insert(struct rig_import *import)
{
	spin_lock(&imports_lock);
	hash_add(imports, &import->node, (unsigned long)import->mr);
	spin_unlock(&imports_lock);
}

static struct rig_import *import_take(struct ib_mr *mr)
{
	struct rig_import *import;

	spin_lock(&imports_lock);
	hash_for_each_possible(imports, import, node, (unsigned long)mr) {
		if (import->mr == mr) {
			hash_del(&import->node);
			spin_unlock(&imports_lock);
			return import;
		}
	}
	spin_unlock(&imports_lock);
	return NULL;
}

static struct rig_import *import_attach(struct dma_buf *dmabuf)
{
	struct rig_import *import;
	int ret;

	import = kzalloc(sizeof(*import), GFP_KERNEL);
	if (!import)
		return ERR_PTR(-ENOMEM);
	import->dmabuf = dmabuf;

	import->attachment = dma_buf_attach(dmabuf, rig_importer_device());
	if (IS_ERR(import->attachment)) {
		ret = PTR_ERR(import->attachment);
		goto err_free;
	}
	import->sgt = dma_buf_map_attachment_unlocked(import->attachment, DMA_BIDIRECTIONAL);
	if (IS_ERR(import->sgt)) {
		ret = PTR_ERR(import->sgt);
		goto err_detach;
	}
	atomic_inc(&rig_imports);
	return import;

err_detach:
	dma_buf_detach(dmabuf, import->attachment);
err_free:
	kfree(import);
	return ERR_PTR(ret);
}

/* Undoes import_attach() and drops the dma-buf itself. */
static void import_release(struct rig_import *import)
{
	dma_buf_unmap_attachment_unlocked(import->attachment, import->sgt, DMA_BIDIRECTIONAL);
	dma_buf_detach(import->dmabuf, import->attachment);
	dma_buf_put(import->dmabuf);
	kfree(import);
	atomic_dec(&rig_imports);
}

/* The pages from page number first on, nr of them. */
static struct page **import_pages(struct rig_import *import, unsigned long first, unsigned long nr)
{
	unsigned long index = 0, found = 0;
	struct sg_page_iter iter;
	struct page **pages;
	int ret = -EINVAL;

	pages = kvmalloc_array(nr, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return ERR_PTR(-ENOMEM);

	for_each_sgtable_page(import->sgt, &iter, 0) {
		if (index++ < first)
			continue;
		if (found == nr)
			break;
		/* Peer memory has addresses but no pages; a software device cannot reach it. */
		if (!sg_page(iter.sg)) {
			ret = -EOPNOTSUPP;
			goto err;
		}
		pages[found++] = sg_page_iter_page(&iter);
	}
	if (found == nr)
		return pages;
err:
	kvfree(pages);
	return ERR_PTR(ret);
}

static struct ib_mr *import_register(struct rig_device *rig, struct rig_import *import,
				     struct ib_pd *pd, u64 offset, u64 length, u64 iova, int access)
{
	unsigned long first = offset >> PAGE_SHIFT;
	unsigned long nr = PAGE_ALIGN(offset_in_page(offset) + length) >> PAGE_SHIFT;
	struct page **pages = import_pages(import, first, nr);
	struct ib_mr *mr;

	if (IS_ERR(pages))
		return ERR_CAST(pages);
	/* Optional flags are a driver's to ignore, and rxe refuses what it does not know. */
	mr = rig_reg_pages(rig, pd, pages, nr, offset_in_page(offset), length, iova,
			   access & ~IB_ACCESS_OPTIONAL);
	kvfree(pages);
	return mr;
}

struct ib_mr *rig_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
				     int access, RIG_DMABUF_PARAMS)
{
	struct rig_device *rig = rig_device_of(pd->device);
	struct rig_import *import;
	struct dma_buf *dmabuf;
	struct ib_mr *mr;
	u64 end;

#ifdef RIG_DMABUF_TAKES_DMAH
	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
#endif
	if (check_add_overflow(offset, length, &end) ||
	    offset_in_page(offset) != offset_in_page(iova))
		return ERR_PTR(-EINVAL);

	/* The descriptor is looked at before the range: probes use a bad one to ask for support. */
	dmabuf = dma_buf_get(fd);
	if (IS_ERR(dmabuf))
		return ERR_CAST(dmabuf);
	if (!length || end > dmabuf->size) {
		dma_buf_put(dmabuf);
		return ERR_PTR(-EINVAL);
	}

	import = import_attach(dmabuf);
	if (IS_ERR(import)) {
		dma_buf_put(dmabuf);
		return ERR_CAST(import);
	}
	mr = import_register(rig, import, pd, offset, length, iova, access);
	if (IS_ERR(mr)) {
		import_release(import);
		return mr;
	}
	import->mr = mr;
	import_insert(import);
	return mr;
}

int rig_dereg_imported_mr(struct rig_device *rig, struct ib_mr *mr, struct ib_udata *udata)
{
	/* Out of the table first: once rxe frees the MR, its address may name another one. */
	struct rig_import *import = import_take(mr);
	int ret = rig->saved.dereg_mr(mr, udata);

	if (!import)
		return ret;
	if (ret)
		import_insert(import);
	else
		import_release(import);
	return ret;
}
