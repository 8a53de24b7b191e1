#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Python module on softverbs, beside pyverbs: run by `softverbs run`, with RDMABUF_C_LIBRARY and PYTHONPATH set."""

import array
import contextlib
import copy
import ctypes
import dis
import errno
import gc
import json
import mmap
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import weakref

import numpy
import rdmabuf
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.enums import (IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_QPT_RC, IBV_SEND_SIGNALED,
                           IBV_WC_SUCCESS, IBV_WR_RDMA_WRITE)
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

WRITE = rdmabuf.Access.LOCAL_WRITE | rdmabuf.Access.REMOTE_WRITE
PAGE = mmap.PAGESIZE


class Tensor:
    """An object with __cuda_array_interface__ on memory of the test."""

    def __init__(self, address, shape, typestr="<f4", strides=None, readonly=False, mask=None):
        self.__cuda_array_interface__ = {"data": (address, readonly), "shape": shape, "typestr": typestr,
                                         "strides": strides, "mask": mask, "version": 3}


class Exchanged:
    """An object with __dlpack__: a matrix of 4-byte numbers on memory of the test."""

    def __init__(self, address, shape, strides, offset=0, device=1):
        numbers = ctypes.c_int64 * len(shape)
        self._shape, self._strides = numbers(*shape), numbers(*strides)
        # DLTensor: data, device type and ID, ndim, dtype (code, bits, lanes), shape, strides, byte_offset
        self._tensor = struct.pack("=QiiiBBHQQQ", address, device, 0, len(shape), 2, 32, 1,
                                   ctypes.addressof(self._shape), ctypes.addressof(self._strides), offset)
        self._bytes = ctypes.create_string_buffer(self._tensor)

    def __dlpack__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._bytes), b"dltensor", None)


class OnSoftverbs(unittest.TestCase):
    def setUp(self):
        self.context = Context(name=get_device_list()[0].name.decode())
        self.pd = PD(self.context)

    def tearDown(self):
        gc.collect()
        self.pd.close()  # fails while something is registered
        self.context.close()

    def refused(self, kind, number, call, *arguments, **options):
        with self.assertRaises(kind) as caught:
            call(*arguments, **options)
        if number:
            self.assertEqual(caught.exception.errno, number)
        return str(caught.exception)


class Objects(OnSoftverbs):
    def test_of_the_buffer_protocol_are_registered_and_stay_at_their_place(self):
        data = bytearray(1000)
        region = rdmabuf.register(self.pd, data, WRITE)
        self.assertEqual(region.length, 1000)
        self.assertEqual(region.iova, region.address)
        self.assertNotEqual(region.lkey, region.rkey)
        self.assertEqual([(each["path"], each["errno"]) for each in region.trail][-1], ("host", 0))
        self.assertIn("host", str(region))
        with self.assertRaises(BufferError):
            data.extend(b"more")
        region.close()
        region.close()
        data.extend(b"more")
        self.refused(ValueError, 0, lambda: region.lkey)

    def test_with_elements_have_the_length_of_their_bytes(self):
        with rdmabuf.register(self.pd, array.array("d", [1, 2, 3])) as region:
            self.assertEqual(region.length, 24)
        with rdmabuf.register(self.pd, memoryview(bytearray(64))[16:32]) as region:
            self.assertEqual(region.length, 16)
        self.refused(ValueError, 0, rdmabuf.register, self.pd, memoryview(bytearray(64))[::2])

    def test_stay_alive_as_long_as_their_region(self):
        region = rdmabuf.register(self.pd, bytearray(b"x" * 4096), WRITE)
        gc.collect()
        self.assertEqual(ctypes.string_at(region.address, 4096), b"x" * 4096)
        del region

    def test_that_refer_to_their_region_end_with_it(self):
        class Buffer(bytearray):
            pass

        class Array(numpy.ndarray):
            pass
        for owner in Buffer(64), numpy.zeros(8).view(Array):
            owner.region = rdmabuf.register(self.pd, owner, WRITE)
        alive = weakref.ref(owner.region)
        del owner
        gc.collect()
        self.assertIsNone(alive())

    def test_whose_elements_have_no_memoryview_are_registered(self):
        dates = numpy.zeros(4, "datetime64[s]")
        if tuple(map(int, numpy.__version__.split(".")[:2])) < (1, 20):
            self.assertIn("pass (address, length)", self.refused(TypeError, 0, rdmabuf.register, self.pd, dates))
        else:
            with rdmabuf.register(self.pd, dates) as region:
                self.assertEqual(region.length, 32)

    def test_that_are_read_only_cannot_be_written(self):
        text = self.refused(rdmabuf.Error, errno.EACCES, rdmabuf.register, self.pd, b"constant", WRITE)
        self.assertIn("read only", text)
        self.refused(rdmabuf.Error, errno.EACCES, rdmabuf.register, self.pd, b"constant", 0)
        rdmabuf.register(self.pd, b"constant", rdmabuf.Access.REMOTE_READ).close()

    def test_with_dlpack_have_their_offset_added(self):
        memory = mmap.mmap(-1, 4 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        with rdmabuf.register(self.pd, Exchanged(address, (3, 5), (5, 1), 64), WRITE) as region:
            self.assertEqual((region.address, region.length), (address + 64, 60))
        self.refused(ValueError, 0, rdmabuf.register, self.pd, Exchanged(address, (3, 5), (1, 3)), WRITE)
        gc.collect()

    def test_with_sizes_that_are_not_those_of_memory_are_refused(self):
        memory = mmap.mmap(-1, PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for wrong in (2**64 + address, 8), (2**64 - 8, 16), (address, 2**64 + 8):
            self.refused(ValueError, 0, rdmabuf.register, self.pd, wrong, WRITE)
        for wrong in (str(address), 8), (address, 8.5):
            self.refused(TypeError, 0, rdmabuf.register, self.pd, wrong, WRITE)
        self.refused(ValueError, 0, rdmabuf.register, self.pd, (address, 8), 1 << 32)
        self.refused(ValueError, 0, rdmabuf.register, self.pd, (address, 8), mapping=(1 << 32) + 1)
        self.refused(rdmabuf.Error, errno.EFAULT, rdmabuf.register, self.pd, (address, 8), device_memory=1 << 32)
        gc.collect()

    def test_that_are_empty_can_be_resized_after_the_error(self):
        empty = bytearray()
        self.refused(ValueError, 0, rdmabuf.register, self.pd, empty)
        empty.extend(b"1")

    def test_without_an_address_are_refused(self):
        self.assertIn("pass (address, length)", self.refused(TypeError, 0, rdmabuf.register, self.pd, [1, 2, 3]))
        for wrong in "pd", True, type("Handle", (dict,), {"handle": 0})():
            self.refused(TypeError, 0, rdmabuf.register, wrong, bytearray(8))
        without = Tensor(1, (1,))
        del without.__cuda_array_interface__["data"]
        self.assertIn("Tensor has no address", self.refused(TypeError, 0, rdmabuf.register, self.pd, without))
        without.__cuda_array_interface__["data"] = None
        self.assertIn("its data is None", self.refused(TypeError, 0, rdmabuf.register, self.pd, without))
        self.assertIn("has no address", self.refused(TypeError, 0, rdmabuf.register, self.pd, Tensor(0, (1,))))
        for wrong in (PAGE,), (PAGE, 8, 8):
            self.assertIn("(address, length)", self.refused(TypeError, 0, rdmabuf.register, self.pd, wrong))
        self.assertIn("references", self.refused(TypeError, 0, rdmabuf.register, self.pd, numpy.zeros(2, object)))
        rdmabuf.register(self.pd, numpy.zeros(2, [("Object", "i4"), ("O", "f4")])).close()

        class Unshared:
            def __dlpack__(self):
                raise BufferError("it has gradients")
        self.assertIn("it has gradients", self.refused(TypeError, 0, rdmabuf.register, self.pd, Unshared()))

    def test_with_dlpack_are_refused_where_their_data_is_no_address_or_no_driver_knows_it(self):
        data = bytearray(64)
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        opencl, cuda, pinned = (Exchanged(address, (4, 4), (4, 1), device=device) for device in (4, 2, 3))
        self.assertIn("type 4 of DLPack", self.refused(TypeError, 0, rdmabuf.register, self.pd, opencl))
        with rdmabuf.Cache(self.pd) as cache:
            for call in (lambda: rdmabuf.register(self.pd, cuda)), (lambda: cache.acquire(cuda)):
                self.assertIn("no driver", self.refused(rdmabuf.Error, errno.EFAULT, call))
        rdmabuf.register(self.pd, pinned).close()
        gc.collect()

    def test_that_are_not_mapped_are_refused_with_the_reason(self):
        text = self.refused(rdmabuf.Error, errno.EFAULT, rdmabuf.register, self.pd, (16 * PAGE, 8), WRITE)
        self.assertIn("ibv_reg_mr on soft0", text)

    def test_are_registered_by_the_paths_that_are_listed(self):
        host = rdmabuf.Path.PEERMEM | rdmabuf.Path.HOST
        with rdmabuf.register(self.pd, bytearray(8), WRITE, paths=host) as region:
            self.assertEqual([each["path"] for each in region.trail], ["peermem", "host"])
        with rdmabuf.Cache(self.pd, paths=rdmabuf.Path.DMABUF) as cache:
            self.refused(rdmabuf.Error, errno.EFAULT, cache.acquire, bytearray(8))

    def test_are_registered_with_all_domains_or_none(self):
        other = PD(self.context)
        domains = [self.pd, other]
        with rdmabuf.register(domains, bytearray(8), WRITE) as region:
            domains.clear()
            self.assertNotEqual(region.mr(0), region.mr(1))
            self.refused(IndexError, 0, region.mr, 2)
        other.close()


class Descriptors(OnSoftverbs):
    def setUp(self):
        super().setUp()
        self.file = os.memfd_create("memory")
        os.ftruncate(self.file, 4 * PAGE)
        self.resolver = rdmabuf.Resolver()
        self.added = self.resolver.add(self.file, 64 * PAGE, 2 * PAGE, PAGE)
        os.close(self.file)

    def tearDown(self):
        self.added.close()
        super().tearDown()

    def test_are_registered_at_any_byte(self):
        with rdmabuf.register(self.pd, (64 * PAGE + 5, PAGE), WRITE, resolver=self.resolver) as region:
            self.assertEqual([(each["path"], each["exporter"]) for each in region.trail], [("dmabuf", "external")])
            self.assertEqual(region.iova, 64 * PAGE + 5)
            region.verify()
            self.added.close()
            self.refused(rdmabuf.Error, errno.ENODEV, region.verify)

    def test_of_cuda_array_interface_have_their_strides_checked(self):
        def register(shape, typestr="<f4", address=64 * PAGE, **options):
            return rdmabuf.register(self.pd, Tensor(address, shape, typestr, **options), WRITE, resolver=self.resolver)
        with register((8, 16)) as region:
            self.assertEqual((region.address, region.length), (64 * PAGE, 512))
        with register((3,), "<U4") as region:
            self.assertEqual(region.length, 48)
        register((8, 16), strides=(64, 4)).close()
        register((numpy.int64(2),), address=numpy.int64(64 * PAGE)).close()
        for wrong in {"strides": (4, 32)}, {"strides": (4,)}, {"shape": (0, 16)}, {"shape": (-2, -2)}, {"typestr": "<"}, \
                {"typestr": "|t8"}, {"mask": Tensor(64 * PAGE, (8, 16))}:
            self.refused(ValueError, 0, register, **{"shape": (8, 16), **wrong})
        self.refused(TypeError, 0, register, (2,), address=64.0 * PAGE)
        self.refused(rdmabuf.Error, errno.EACCES, register, (1,), readonly=True)

    def test_of_cuda_array_interface_that_no_driver_knows_are_refused(self):
        memory = mmap.mmap(-1, PAGE)
        unknown = Tensor(ctypes.addressof(ctypes.c_char.from_buffer(memory)), (8,))
        self.assertIn("no driver", self.refused(rdmabuf.Error, errno.EFAULT, rdmabuf.register, self.pd, unknown))
        gc.collect()

    def test_need_a_resolver(self):
        with rdmabuf.Cache(self.pd) as cache:
            for wrong in self.added, cache, "resolver":
                for call in rdmabuf.nearest, rdmabuf.export, lambda obj, **options: rdmabuf.register(self.pd, obj, **options):
                    self.refused(TypeError, 0, call, (64 * PAGE, 8), resolver=wrong)
                self.refused(TypeError, 0, rdmabuf.Cache, self.pd, resolver=wrong)
        gc.collect()

    def test_are_exported_with_their_offset(self):
        made = rdmabuf.export((64 * PAGE + 5, 8), resolver=self.resolver)
        self.assertEqual((made.offset, made.length, made.mapping), (PAGE + 5, 8, rdmabuf.Mapping.STANDARD))
        self.assertEqual(os.fstat(made.fd).st_size, 4 * PAGE)
        os.close(made.fd)
        self.refused(rdmabuf.Error, errno.EFAULT, rdmabuf.export, bytearray(8), resolver=self.resolver)

    def test_are_kept_by_a_cache_until_the_memory_is_replaced(self):
        with rdmabuf.Cache(self.pd, resolver=self.resolver) as cache:
            with cache.acquire((64 * PAGE, PAGE), WRITE) as lease:
                first = lease.lkey
            with cache.acquire((64 * PAGE, PAGE), WRITE) as lease:
                self.assertEqual(lease.lkey, first)
            self.assertEqual(cache.statistics["hits"], 1)
            self.added.close()
            file = os.memfd_create("memory")
            os.ftruncate(file, 2 * PAGE)
            self.added = self.resolver.add(file, 64 * PAGE, 2 * PAGE)
            os.close(file)
            with cache.acquire((64 * PAGE, PAGE), WRITE) as lease:
                self.assertNotEqual(lease.lkey, first)
            self.assertEqual(cache.statistics["stale"], 1)
        self.refused(ValueError, 0, cache.acquire, bytearray(8))

    def test_of_the_host_are_not_kept_by_a_cache_that_is_checked(self):
        for checked, regions in (True, 0), (1 << 32, 0), (False, 1):
            with rdmabuf.Cache(self.pd, checked=checked) as cache:
                cache.acquire(bytearray(8)).close()
                self.assertEqual(cache.statistics["regions"], regions)

    def test_keep_a_cache_while_they_are_leased(self):
        cache = rdmabuf.Cache(self.pd, resolver=self.resolver)
        lease, alive = cache.acquire((64 * PAGE, PAGE), WRITE), weakref.ref(cache)
        del cache
        gc.collect()
        self.assertIsNotNone(alive())
        lease.close()

    def test_end_before_the_protection_domains_of_their_cache(self):
        ended = []

        class Domain(PD):
            def __del__(self):
                ended.append("domain")
        destroy = rdmabuf._library.rdmabuf_cache_destroy

        def destroyed(handle):
            ended.append("cache")
            destroy(handle)
        with unittest.mock.patch.object(rdmabuf._library, "rdmabuf_cache_destroy", destroyed):
            for leased in False, True:
                ended.clear()
                cache = rdmabuf.Cache(Domain(self.context), resolver=self.resolver)
                lease = cache.acquire((64 * PAGE, PAGE), WRITE)
                if not leased:
                    lease.close()
                    lease = None
                del cache
                lease = None
                gc.collect()
                self.assertEqual(ended, ["cache", "domain"])

    def test_leave_nothing_behind_when_they_have_ended(self):
        before = len(rdmabuf._ends) + len(rdmabuf._orphans)
        for _ in range(100):
            rdmabuf.flush(bytearray(8))
        self.assertEqual(len(rdmabuf._ends) + len(rdmabuf._orphans), before)

    @contextlib.contextmanager
    def interrupted(self, name):
        """Raises when the function returns, as the handler of Ctrl-C can."""
        function = getattr(rdmabuf._library, name)

        def interrupted(*arguments):
            function(*arguments)
            raise KeyboardInterrupt
        descriptors = os.listdir("/proc/self/fd")
        with unittest.mock.patch.object(rdmabuf._library, name, interrupted), self.assertRaises(KeyboardInterrupt):
            yield
        self.assertEqual(os.listdir("/proc/self/fd"), descriptors)

    def test_are_given_back_if_a_signal_interrupts_the_call(self):
        data = bytearray(PAGE)
        with self.interrupted("rdmabuf_register_many"):
            rdmabuf.register(self.pd, data, WRITE)
        with rdmabuf.Cache(self.pd) as cache, self.interrupted("rdmabuf_cache_acquire"):
            cache.acquire(data, WRITE)
        with self.interrupted("rdmabuf_export_range"):
            rdmabuf.export((64 * PAGE, 8), resolver=self.resolver)
        file = os.memfd_create("other")
        os.ftruncate(file, PAGE)
        with self.interrupted("rdmabuf_external_add"):
            self.resolver.add(file, 128 * PAGE, PAGE)
        os.close(file)
        data.extend(b"more")

    def use(self, data):
        with rdmabuf.Cache(self.pd) as cache:
            cache.acquire(data, WRITE).close()
            cache.invalidate(64 * PAGE, PAGE)
            rdmabuf.register(self.pd, data, WRITE).close()
            os.close(rdmabuf.export((64 * PAGE, 8), resolver=self.resolver).fd)

    def test_leave_nothing_wherever_a_signal_interrupts_a_call(self):
        data, interrupted, step = bytearray(PAGE), True, 0
        descriptors = os.listdir("/proc/self/fd")

        def trace(frame, event, _):
            nonlocal left, interrupted
            if frame.f_code.co_filename != rdmabuf.__file__:
                return None
            frame.f_trace_opcodes = True
            # Python runs no handler between the end of the last call in a function and the return.
            left -= event == "opcode" and frame.f_code.co_code[frame.f_lasti] != dis.opmap["RETURN_VALUE"]
            if left < 0:
                sys.settrace(None)
                interrupted = True
                raise KeyboardInterrupt
            return trace
        while interrupted:
            left, interrupted = step, False
            sys.settrace(trace)
            # Python reports an exception in a destructor, and does not raise it.
            with contextlib.suppress(KeyboardInterrupt), unittest.mock.patch.object(sys, "unraisablehook", id):
                self.use(data)
            sys.settrace(None)
            step += 5
            gc.collect()
            rdmabuf.Resolver()  # The next call ends what a destructor has not.
            data.extend(b"1")  # It is not locked.
            self.assertEqual(os.listdir("/proc/self/fd"), descriptors, step)
        self.assertGreater(step, 300)

    def test_keep_their_memory_while_it_cannot_be_deregistered(self):
        owner = numpy.zeros(8)
        region, alive = rdmabuf.register(self.pd, owner, WRITE), weakref.ref(owner)
        faults = ctypes.CDLL(None).softverbs_set_faults
        faults(b"dereg_mr#1=EBUSY")
        with unittest.mock.patch.object(sys, "unraisablehook") as told:
            del region, owner
            gc.collect()
        self.assertIn("a memory window is bound to the region", str(told.call_args.args[0].exc_value))
        del told  # It refers to the region.
        self.assertIsNotNone(alive())
        # Nothing but the next call deregisters it: that can be in another thread.
        gc.collect()
        self.assertEqual(ctypes.CDLL(None).softverbs_live(7), 1)  # SOFTVERBS_MR
        rdmabuf.Resolver()
        gc.collect()
        self.assertIsNone(alive())

    def test_of_a_device_that_fails_for_ever_are_not_all_tried_by_each_call(self):
        faults = ctypes.CDLL(None).softverbs_set_faults
        faults(b",".join(b"dereg_mr#%d=EIO" % n for n in range(1, 100)))
        kept = [rdmabuf.register(self.pd, bytearray(8), WRITE) for _ in range(20)]
        with unittest.mock.patch.object(sys, "unraisablehook"):
            kept.clear()
            gc.collect()
        original, calls = rdmabuf._library.rdmabuf_deregister, []
        with unittest.mock.patch.object(rdmabuf._library, "rdmabuf_deregister",
                                        lambda region: (calls.append(region._obj.value), original(region))[1]):
            for _ in range(3):
                rdmabuf.Resolver()
        self.assertLess(len(calls), 30)
        self.assertEqual(len(set(calls)), 20)
        faults(b"")
        rdmabuf.Resolver()
        self.assertEqual(ctypes.CDLL(None).softverbs_live(7), 0)  # SOFTVERBS_MR

    def test_end_although_a_signal_interrupts_their_destructor(self):
        class Holder:
            pass

        def trace(frame, event, _):
            if frame.f_code.co_name == "__del__" and frame.f_code.co_filename == rdmabuf.__file__:
                sys.settrace(None)
                raise KeyboardInterrupt

        def is_open(handle):
            return handle.value if hasattr(handle, "value") else handle.obj

        def lock(data):
            made = rdmabuf._BufferLock()
            rdmabuf._get_buffer(data, ctypes.byref(made.buffer), 0)
            return made
        for make in (lambda data: rdmabuf.register(self.pd, data, WRITE), rdmabuf.Cache(self.pd).acquire, lock,
                     lambda data: rdmabuf.Cache(self.pd, checked=False)):
            for collected in False, True:
                owner, holder = numpy.zeros(8), Holder()
                alive = weakref.ref(owner)
                holder.made, holder.owner = make(owner), owner
                del owner
                handle = (holder.made._cache if isinstance(holder.made, rdmabuf.Cache) else holder.made)._state.handle
                self.assertTrue(is_open(handle))
                holder.cycle = holder if collected else None
                told = []  # Its argument would keep the object alive.
                with unittest.mock.patch.object(sys, "unraisablehook", lambda _: told.append(True)):
                    sys.settrace(trace)
                    holder = None
                    gc.collect()
                    sys.settrace(None)
                self.assertEqual(told, [True])
                self.assertFalse(is_open(handle))
                del handle
                gc.collect()
                self.assertIsNone(alive())

    def test_stay_registered_if_a_signal_comes_before_they_are_closed(self):
        data = bytearray(PAGE)
        region = rdmabuf.register(self.pd, data, WRITE)
        with rdmabuf.Cache(self.pd) as cache:
            lease = cache.acquire(data, WRITE)
            for each, name in (region, "rdmabuf_deregister"), (lease, "rdmabuf_lease_release"):
                with unittest.mock.patch.object(rdmabuf._library, name, side_effect=KeyboardInterrupt):
                    self.assertRaises(KeyboardInterrupt, each.close)
                self.assertEqual(each.lkey, each.keys()[0])
                self.refused(BufferError, 0, data.extend, b"more")
                each.close()
        data.extend(b"more")

    def test_are_closed_once_if_a_signal_interrupts_closing(self):
        data = bytearray(PAGE)
        region = rdmabuf.register(self.pd, data, WRITE)
        with self.interrupted("rdmabuf_deregister"):
            region.close()
        region.close()
        with rdmabuf.Cache(self.pd) as cache:
            lease = cache.acquire(data, WRITE)
            with self.interrupted("rdmabuf_lease_release"):
                lease.close()
            lease.close()
        region = rdmabuf.register(self.pd, data, WRITE)
        deregister = rdmabuf._library.rdmabuf_deregister

        def closing(handle):
            result = deregister(handle)
            region.close()
            return result
        with unittest.mock.patch.object(rdmabuf._library, "rdmabuf_deregister", closing):
            region.close()
        data.extend(b"more")


class End:
    """One end of a connection: a queue pair of pyverbs and its completion queue."""

    def __init__(self, context, pd):
        self.cq = CQ(context, 16)
        init = QPInitAttr(qp_type=IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(max_send_wr=8, max_recv_wr=8))
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
        self.qp = QP(pd, init, attributes)  # in the state INIT
        self.address = {"qpn": self.qp.qp_num, "lid": context.query_port(1).lid, "gid": str(context.query_gid(1, 0))}

    def connect(self, peer):
        attributes = QPAttr(port_num=1)
        attributes.dest_qp_num = peer["qpn"]
        attributes.path_mtu = 3
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry, attributes.min_rnr_timer = 0, 7, 7, 12
        route = GlobalRoute(dgid=GID(peer["gid"]), sgid_index=0)
        attributes.ah_attr = AHAttr(dlid=peer["lid"], port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attributes)

    def write(self, source, rkey, iova):
        """Writes all bytes of a region to a peer, and returns the status of the completion."""
        request = SendWR(num_sge=1, sg=[SGE(source.iova, source.length, source.lkey)], opcode=IBV_WR_RDMA_WRITE,
                         send_flags=IBV_SEND_SIGNALED)
        request.set_wr_rdma(rkey, iova)
        self.qp.post_send(request)
        completions = []
        while not completions:
            completions = self.cq.poll()[1]
        return completions[0].status

    def close(self):
        self.qp.close()
        self.cq.close()


def numbers():
    """What the writer of the test with two processes writes."""
    return numpy.arange(3000, dtype=numpy.float64).reshape(30, 100) ** 2


def write_numbers():
    """The second process of that test: a JSON object in each line of its standard streams."""
    context = Context(name=get_device_list()[0].name.decode())
    pd = PD(context)
    end = End(context, pd)
    print(json.dumps(end.address), flush=True)
    peer = json.loads(sys.stdin.readline())
    end.connect(peer)
    with rdmabuf.register(pd, numbers()) as region:
        print(json.dumps({"status": end.write(region, peer["rkey"], peer["iova"])}), flush=True)
    sys.stdin.read()  # Until the peer has seen the numbers.
    for each in end, pd, context:
        each.close()


class Transfers(OnSoftverbs):
    def test_write_to_registered_objects_through_pyverbs(self):
        source, target = bytearray(range(200)), bytearray(200)
        here, there = End(self.context, self.pd), End(self.context, self.pd)
        here.connect(there.address)
        there.connect(here.address)
        with rdmabuf.register(self.pd, source) as read, rdmabuf.register(self.pd, target, WRITE) as written:
            self.assertEqual(here.write(read, written.rkey, written.iova), IBV_WC_SUCCESS)
        self.assertEqual(target, source)
        here.close()
        there.close()

    def let_a_second_process_write(self, rows):
        """`rows` are 30 * 100 numbers of 8 bytes."""
        end = End(self.context, self.pd)
        options = [f"-W{each}" for each in sys.warnoptions]
        writer = subprocess.Popen([sys.executable, *options, __file__, "write_numbers"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        with writer, rdmabuf.register(self.pd, rows, WRITE) as region:
            end.connect(json.loads(writer.stdout.readline()))
            print(json.dumps({**end.address, "rkey": region.rkey, "iova": region.iova}), file=writer.stdin, flush=True)
            self.assertEqual(json.loads(writer.stdout.readline()), {"status": IBV_WC_SUCCESS})
            numpy.testing.assert_array_equal(rows, numbers())
        self.assertEqual(writer.returncode, 0)
        end.close()

    def test_write_a_numpy_array_from_a_second_process(self):
        array = numpy.zeros((32, 100))
        self.let_a_second_process_write(array[1:31])
        self.assertFalse(array[0].any() or array[31].any())
        self.refused(ValueError, 0, rdmabuf.register, self.pd, array[:, :50], WRITE)

    def test_register_in_several_threads(self):
        failed = []

        def work():
            for _ in range(50):
                with rdmabuf.register(self.pd, bytearray(100), WRITE) as region:
                    if region.length != 100:
                        failed.append(region)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(failed, [])

    def at_once(self, work):
        """Runs a function in four threads, which begin together."""
        begin = threading.Barrier(4)

        def run():
            begin.wait()
            work()

        threads = [threading.Thread(target=run) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def test_are_closed_once_by_several_threads(self):
        calls = []

        def deregister(handle):
            calls.append(handle)
            return original(handle)

        original = rdmabuf._library.rdmabuf_deregister
        rdmabuf._library.rdmabuf_deregister = deregister
        for _ in range(50):
            self.at_once(rdmabuf.register(self.pd, bytearray(100), WRITE).close)
        rdmabuf._library.rdmabuf_deregister = original
        self.assertEqual(len(calls), 50)

    def test_need_an_open_protection_domain(self):
        closed = PD(self.context)
        closed.close()
        self.assertIn("the PD was closed", self.refused(ValueError, 0, rdmabuf.register, closed, bytearray(8)))

        class Named(PD):
            __slots__ = "absent", "none"
        named = Named(self.context)
        named.none = None
        rdmabuf.register(named, bytearray(8)).close()
        named.close()

    def test_of_a_cache_need_an_open_protection_domain(self):
        closed = PD(self.context)
        cache = rdmabuf.Cache(closed)
        closed.close()
        self.assertIn("the PD was closed", self.refused(ValueError, 0, cache.acquire, bytearray(8)))

    def test_keep_no_cache_when_they_are_closed(self):
        cache = rdmabuf.Cache(self.pd)
        lease, alive = cache.acquire(bytearray(8)), weakref.ref(cache)
        lease.close()
        del cache
        self.assertIsNone(alive())

    def test_are_deregistered_before_their_memory_ends_with_the_interpreter(self):
        # While another thread runs, Python clears the names of modules, the last one that was imported first.
        script = """
import ctypes, os, sys, threading, types
other = sys.modules["other"] = types.ModuleType("other")
import rdmabuf
from pyverbs.device import Context, get_device_list
from pyverbs.pd import PD

class Memory(bytearray):
    def __del__(self, live=ctypes.CDLL(None).softverbs_live, write=os.write):
        write(1, b"%d" % live(7))  # SOFTVERBS_MR

threading.Thread(target=lambda: threading.Event().wait(), daemon=True).start()
pd = PD(Context(name=get_device_list()[0].name.decode()))
other.kept = """
        for kept in "rdmabuf.register(pd, Memory(8))", "rdmabuf.Cache(pd).acquire(Memory(8))":
            self.assertEqual(subprocess.check_output([sys.executable, "-c", script + kept], text=True), "0")

    def test_have_keys_for_each_protection_domain(self):
        other = PD(self.context)
        with rdmabuf.register([self.pd, other], bytearray(8)) as region:
            self.assertEqual(region.keys(), (region.lkey, region.rkey))
            self.assertNotEqual(region.keys(1), region.keys(0))
            for missing in 2, -1, 2**70:
                self.refused(IndexError, 0, region.keys, missing)
        with rdmabuf.Cache([self.pd, other]) as cache, cache.acquire(bytearray(8)) as lease:
            self.assertNotEqual(lease.keys(1), lease.keys(0))
            self.refused(IndexError, 0, lease.keys, 2)
            self.refused(TypeError, 0, lease.keys, 0.0)
        other.close()

    def test_are_not_copied(self):
        with rdmabuf.register(self.pd, bytearray(100)) as region:
            self.refused(TypeError, 0, copy.copy, region)


class Texts(unittest.TestCase):
    def test_name_errnos_and_devices(self):
        self.assertIn("ENOTSUPP", rdmabuf.explain(524, "ibv_reg_dmabuf_mr"))
        self.assertIn("nvidia_peermem", rdmabuf.explain(errno.EFAULT, "ibv_reg_mr"))
        self.assertEqual(rdmabuf.explain(-errno.EFAULT, "ibv_reg_mr"), rdmabuf.explain(errno.EFAULT, "ibv_reg_mr"))
        self.assertEqual(rdmabuf.nearest(bytearray(8)), ["soft0"])

    def test_name_the_devices_of_a_machine_that_may_have_none(self):
        script = ("import os, rdmabuf; found = '/sys/class/infiniband'; "
                  "print(sorted(rdmabuf.nearest(bytearray(8))) == sorted(os.listdir(found) if os.path.isdir(found) else []))")
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self.assertEqual(subprocess.check_output([sys.executable, "-c", script], env=environment, text=True), "True\n")
        self.assertFalse(rdmabuf.flush(bytearray(8)))
        self.assertRegex(rdmabuf.version(), r"^\d+\.\d+\.\d+$")
        json.dumps(rdmabuf.Access.LOCAL_WRITE)


class Command(unittest.TestCase):
    def run_with(self, path, *arguments):
        return subprocess.run([sys.executable, "-m", "rdmabuf", *arguments], capture_output=True, text=True,
                              env={**os.environ, "PATH": path})

    def test_runs_the_command_with_its_arguments(self):
        with tempfile.TemporaryDirectory() as folder:
            command = pathlib.Path(folder, "rdmabuf")
            command.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
            command.chmod(0o755)
            result = self.run_with(folder, "doctor", "--memory", "memfd")
        self.assertEqual((result.returncode, result.stdout), (3, "doctor --memory memfd\n"))

    def test_says_how_to_get_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.run_with(folder, "doctor")
        self.assertEqual(result.returncode, 1)
        self.assertIn("rdmabuf-tools", result.stderr)


if __name__ == "__main__":
    write_numbers() if sys.argv[1:] == ["write_numbers"] else unittest.main()
