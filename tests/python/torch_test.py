# SPDX-License-Identifier: BSD-3-Clause
"""Registers tensors of PyTorch by the Python module, on softverbs. RDMABUF_TORCH_DEVICE says where they are: "cpu" or "cuda".
With "cuda" it needs no pyverbs, because there is none for the Python of most machines with a GPU."""

import ctypes
import errno
import gc
import os
import unittest

import rdmabuf
import torch

DEVICE = os.environ["RDMABUF_TORCH_DEVICE"]
PATH = {"cpu": "host", "cuda": "dmabuf"}[DEVICE]
WRITE = rdmabuf.Access.LOCAL_WRITE | rdmabuf.Access.REMOTE_WRITE
PAGE = os.sysconf("SC_PAGESIZE")
# PyTorch takes as much from the driver at least, so that such a tensor has an allocation of its own.
OWN_ALLOCATION = 32 << 20


class Verbs:
    """A protection domain of the first device, by the functions that softverbs has in place of libibverbs."""

    def __init__(self):
        self._library = ctypes.CDLL(None)
        for name in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd"):
            getattr(self._library, name).restype = ctypes.c_void_p
        devices = ctypes.cast(self._library.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
        self.context = ctypes.c_void_p(self._library.ibv_open_device(ctypes.c_void_p(devices[0])))
        self._library.ibv_free_device_list(devices)
        self.pd = self._library.ibv_alloc_pd(self.context)

    def close(self):
        """Returns EBUSY if something is still registered with the domain."""
        kept = self._library.ibv_dealloc_pd(ctypes.c_void_p(self.pd))
        self._library.ibv_close_device(self.context)
        return kept


class OnSoftverbs(unittest.TestCase):
    def setUp(self):
        self.verbs = Verbs()

    def tearDown(self):
        gc.collect()
        self.assertEqual(self.verbs.close(), 0)

    def refused(self, number, call, *arguments, **options):
        with self.assertRaises(rdmabuf.Error) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.errno, number, caught.exception)

    def expect_registered(self, tensor):
        with rdmabuf.register(self.verbs.pd, tensor, WRITE) as region:
            self.assertEqual(region.trail[-1]["path"], PATH, region)
            self.assertEqual((region.iova, region.length), (tensor.data_ptr(), tensor.numel() * tensor.element_size()))


class Tensors(OnSoftverbs):
    def test_of_each_type_are_registered(self):
        for name in "uint8", "float32", "float16", "bfloat16", "float8_e4m3fn", "bool", "complex64", "int64":
            if hasattr(torch, name):  # PyTorch has float8 since 2.1
                with self.subTest(name):
                    self.expect_registered(torch.zeros(1000, device=DEVICE).to(getattr(torch, name)))

    def test_are_registered_where_they_begin(self):
        tensor = torch.zeros((64, 1000), dtype=torch.uint8, device=DEVICE)
        self.expect_registered(tensor[3:7])
        self.expect_registered(tensor[5, 13:14])

    def test_with_gradients_are_registered(self):
        self.expect_registered(torch.nn.Linear(100, 100).to(DEVICE).weight)

    def test_that_are_not_contiguous_or_empty_are_refused(self):
        tensor = torch.zeros((64, 64), device=DEVICE)
        for view, reason in ((tensor[:, ::2], "not contiguous"), (tensor.t(), "not contiguous"), (tensor[:0], "no bytes")):
            with self.assertRaisesRegex(ValueError, reason):
                rdmabuf.register(self.verbs.pd, view, WRITE)

    def test_stay_alive_as_long_as_their_region(self):
        tensor = torch.full((OWN_ALLOCATION,), 7, dtype=torch.uint8, device=DEVICE)
        address = tensor.data_ptr()
        region = rdmabuf.register(self.verbs.pd, tensor, WRITE)
        tensor.data = torch.zeros(1, dtype=torch.uint8, device=DEVICE)
        gc.collect()
        region.verify()
        if DEVICE == "cpu":
            self.assertEqual(ctypes.string_at(address, 4), b"\7" * 4)
        region.close()
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
        self.refused(errno.EFAULT, rdmabuf.register, self.verbs.pd, (address, OWN_ALLOCATION), WRITE)

    def test_without_data_are_refused(self):
        with self.assertRaisesRegex(TypeError, "has no address"):
            rdmabuf.register(self.verbs.pd, torch.empty(8, device="meta"), WRITE)

    def test_with_other_values_than_their_memory_are_refused(self):
        with self.assertRaisesRegex(ValueError, "resolve_conj"):
            rdmabuf.register(self.verbs.pd, torch.zeros(8, dtype=torch.complex64, device=DEVICE).conj(), WRITE)

    def test_in_host_memory_are_not_exported(self):
        tensors = [(torch.zeros(1000), errno.EFAULT)]
        if DEVICE == "cuda":
            tensors.append((torch.zeros(1000).pin_memory(), errno.EOPNOTSUPP))
        for tensor, number in tensors:
            rdmabuf.register(self.verbs.pd, tensor, WRITE).close()
            self.refused(number, rdmabuf.export, tensor)

    def test_have_nearest_devices(self):
        self.assertEqual(rdmabuf.nearest(torch.zeros(1000, device=DEVICE)), ["soft0"])


class InTwoProcesses(unittest.TestCase):
    def test_a_second_process_writes_a_tensor_in_host_memory(self):
        import rdmabuf_test  # Needs pyverbs.

        transfers = rdmabuf_test.Transfers("let_a_second_process_write")
        transfers.setUp()
        tensor = torch.zeros((32, 100), dtype=torch.float64)
        transfers.let_a_second_process_write(tensor[1:31])
        transfers.tearDown()
        self.assertFalse(tensor[0].any() or tensor[31].any())


class OnGpu(OnSoftverbs):
    def allocate(self):
        return torch.zeros(OWN_ALLOCATION, dtype=torch.uint8, device="cuda")

    def replace(self, tensors):
        """Frees the last of the tensors, and appends others until one is at its address."""
        address = tensors[-1].data_ptr()
        tensors.pop()
        gc.collect()
        torch.cuda.empty_cache()
        for _ in range(100):
            tensors.append(self.allocate())
            if tensors[-1].data_ptr() == address:
                return
        self.fail("the driver chose other addresses for 100 tensors, so that nothing is proven")

    def test_freed_tensors_do_not_verify(self):
        tensor = self.allocate()
        with rdmabuf.register(self.verbs.pd, (tensor.data_ptr(), OWN_ALLOCATION), WRITE) as region:
            region.verify()
            del tensor
            gc.collect()
            torch.cuda.empty_cache()
            self.refused(errno.ENODEV, region.verify)

    def test_a_tensor_at_the_address_of_a_freed_one_is_registered_anew(self):
        with rdmabuf.Cache(self.verbs.pd) as cache:
            tensors = [self.allocate()]
            for _ in range(2):
                cache.acquire(tensors[-1], WRITE).close()
            self.assertEqual(cache.statistics["hits"], 1)
            self.replace(tensors)
            cache.acquire(tensors[-1], WRITE).close()
            self.assertEqual(cache.statistics["stale"], 1)

    def test_tensors_are_exported_and_flushed(self):
        tensor = torch.zeros(4 * PAGE, dtype=torch.uint8, device="cuda")[100:]
        made = rdmabuf.export(tensor)
        self.assertEqual((made.offset, made.length), (tensor.data_ptr() % PAGE, tensor.numel()))
        os.close(made.fd)
        rdmabuf.flush(tensor)


if __name__ == "__main__":
    unittest.main(defaultTest=["Tensors", "OnGpu" if DEVICE == "cuda" else "InTwoProcesses"], verbosity=2)
