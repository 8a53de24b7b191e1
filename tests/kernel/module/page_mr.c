// SPDX-License-Identifier: GPL-2.0-only
/*
 * rxe has exactly one way to register memory that user space may address: pinning a range of the
 * calling process. So the pages get a mapping in that process for as long as the registration
 * takes. rxe pins the pages themselves, hence the mapping can go again at once.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/mman.h>

#include "rig.h"

struct page_window {
	struct page **pages;
	unsigned long nr_pages;
};

static int page_window_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct page_window *window = file->private_data;
	unsigned long left = window->nr_pages;

	if (vma_pages(vma) != left)
		return -EINVAL;
	/* A fork during the registration must not inherit the window. */
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	return vm_insert_pages(vma, vma->vm_start, window->pages, &left);
}

static const struct file_operations page_window_fops = {
	.owner = THIS_MODULE,
	.mmap = page_window_mmap,
};

struct ib_mr *rig_reg_pages(struct rig_device *rig, struct ib_pd *pd, struct page **pages,
			    unsigned long nr_pages, unsigned long page_offset, u64 length, u64 iova,
			    int access)
{
	struct page_window window = { .pages = pages, .nr_pages = nr_pages };
	unsigned long start;
	struct file *file;
	struct ib_mr *mr;

	file = anon_inode_getfile("[rdmabuf_rig]", &page_window_fops, &window, O_RDWR);
	if (IS_ERR(file))
		return ERR_CAST(file);
	start = vm_mmap(file, 0, nr_pages << PAGE_SHIFT, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	fput(file);
	if (IS_ERR_VALUE(start))
		return ERR_PTR((long)start);

	mr = rig->saved.reg_user_mr(pd, start + page_offset, length, iova, access,
				    RIG_DMAH_NULL NULL);
	/* Fails only in a process that is being killed, which loses all its mappings anyway. */
	vm_munmap(start, nr_pages << PAGE_SHIFT);
	if (IS_ERR(mr))
		return mr;

	/* rxe leaves these to the uverbs call it was written for, and checks ranges against them.
	 */
	mr->device = pd->device;
	mr->type = IB_MR_TYPE_USER;
	mr->iova = iova;
	mr->length = length;
	return mr;
}
