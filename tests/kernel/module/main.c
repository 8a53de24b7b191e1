// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replaces a few operations of every rxe device. The module registers as a client of the RDMA core,
 * so it sees a device before ib_uverbs does, provided it was loaded first: ib_uverbs looks once,
 * when it meets a device, which operations there are, and builds its method table from that.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/platform_device.h>
#include <linux/slab.h>

#include "rig.h"

static struct ib_client rig_client;
static struct platform_device *rig_importer;

struct rig_device *rig_device_of(struct ib_device *ibdev)
{
	return ib_get_client_data(ibdev, &rig_client);
}

struct device *rig_importer_device(void)
{
	return &rig_importer->dev;
}

static int rig_dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	struct rig_device *rig = rig_device_of(mr->device);

	if (mr->type == IB_MR_TYPE_DM)
		return rig_dereg_dm_mr(rig, mr);
	return rig_dereg_imported_mr(rig, mr, udata);
}

static int rig_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			    struct ib_udata *udata)
{
	int ret = rig_device_of(ibdev)->saved.query_device(ibdev, attr, udata);

	if (!ret)
		attr->max_dm_size = RIG_DM_CAPACITY;
	return ret;
}

static int rig_add(struct ib_device *ibdev)
{
	struct rig_device *rig;

	if (ibdev->ops.driver_id != RDMA_DRIVER_RXE)
		return -EOPNOTSUPP;
	rig = kzalloc(sizeof(*rig), GFP_KERNEL);
	if (!rig)
		return -ENOMEM;
	rig->ibdev = ibdev;
	rig->saved = ibdev->ops;
	mutex_init(&rig->dm_lock);
	INIT_LIST_HEAD(&rig->dms);
	ib_set_client_data(ibdev, &rig_client, rig);

	/* The device calls into this module until remove() has put its operations back. */
	__module_get(THIS_MODULE);
	ibdev->ops.dereg_mr = rig_dereg_mr;
	ibdev->ops.query_device = rig_query_device;
	ibdev->ops.mmap = rig_mmap;
	ibdev->ops.alloc_dm = rig_alloc_dm;
	ibdev->ops.dealloc_dm = rig_dealloc_dm;
	ibdev->ops.reg_dm_mr = rig_reg_dm_mr;
	/* Should rxe learn this one day, its own import is the one to test. */
	if (!ibdev->ops.reg_user_mr_dmabuf)
		ibdev->ops.reg_user_mr_dmabuf = rig_reg_user_mr_dmabuf;
	ibdev->attrs.max_dm_size = RIG_DM_CAPACITY;
	dev_info(&ibdev->dev, "rdmabuf_rig: dma-buf import and device memory added\n");
	return 0;
}

/* ib_uverbs came later, so it has gone already, and every MR and device memory with it. */
static void rig_remove(struct ib_device *ibdev, void *client_data)
{
	struct rig_device *rig = client_data;

	WARN_ON(!list_empty(&rig->dms));
	ibdev->attrs.max_dm_size = 0;
	ibdev->ops.dereg_mr = rig->saved.dereg_mr;
	ibdev->ops.query_device = rig->saved.query_device;
	ibdev->ops.mmap = rig->saved.mmap;
	ibdev->ops.alloc_dm = rig->saved.alloc_dm;
	ibdev->ops.dealloc_dm = rig->saved.dealloc_dm;
	ibdev->ops.reg_dm_mr = rig->saved.reg_dm_mr;
	ibdev->ops.reg_user_mr_dmabuf = rig->saved.reg_user_mr_dmabuf;
	kfree(rig);
	module_put(THIS_MODULE);
}

static struct ib_client rig_client = {
	.name = KBUILD_MODNAME,
	.add = rig_add,
	.remove = rig_remove,
};

static int rig_get_count(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%d\n", atomic_read((atomic_t *)param->arg));
}

static const struct kernel_param_ops rig_count_ops = { .get = rig_get_count };

/* What is alive now, for leak checks: both are 0 when no process uses the device. */
module_param_cb(imports, &rig_count_ops, &rig_imports, 0444);
MODULE_PARM_DESC(imports, "dma-bufs attached now (read only)");
module_param_cb(device_memories, &rig_count_ops, &rig_device_memories, 0444);
MODULE_PARM_DESC(device_memories, "device memories allocated now (read only)");

static int __init rig_init(void)
{
	const struct platform_device_info info = {
		.name = KBUILD_MODNAME,
		.id = PLATFORM_DEVID_NONE,
		.dma_mask = DMA_BIT_MASK(64),
	};
	int ret;

	rig_importer = platform_device_register_full(&info);
	if (IS_ERR(rig_importer))
		return PTR_ERR(rig_importer);
	ret = ib_register_client(&rig_client);
	if (ret)
		platform_device_unregister(rig_importer);
	return ret;
}

static void __exit rig_exit(void)
{
	ib_unregister_client(&rig_client);
	platform_device_unregister(rig_importer);
}

module_init(rig_init);
module_exit(rig_exit);

MODULE_DESCRIPTION("dma-buf import and device memory for Soft-RoCE, for tests");
MODULE_LICENSE("GPL");
#ifdef RIG_NAMESPACE_IS_IDENTIFIER
MODULE_IMPORT_NS(DMA_BUF);
#else
MODULE_IMPORT_NS("DMA_BUF");
#endif
