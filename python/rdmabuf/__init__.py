# SPDX-License-Identifier: BSD-3-Clause
"""Memory of any kind as a memory region of libibverbs.

    with rdmabuf.register(pd, tensor, rdmabuf.Access.LOCAL_WRITE | rdmabuf.Access.REMOTE_WRITE) as region:
        work_request.sg_list = [SGE(region.iova, region.length, region.lkey)]

Objects are tensors of PyTorch (of any type, also with gradients), anything with ``__cuda_array_interface__``, the buffer
protocol (bytearray, memoryview, numpy.ndarray) or ``__dlpack__``, or a tuple ``(address, length)``. Their elements must be
contiguous. A protection domain is
a pyverbs ``PD`` or the address of an ``ibv_pd`` as an int; it stays the program's, and must outlive what is registered.

Functions raise `Error`, an OSError, whose text says what was tried, what failed and what to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno as _errno
import json
import math
import operator
import os
import pathlib
import re
import sys
import threading
import weakref
from typing import Any, NamedTuple, TypeVar

__all__ = ["Access", "Cache", "Error", "Export", "External", "Lease", "Mapping", "Path", "Region", "Resolver", "explain", "export",
           "flush", "nearest", "register", "version"]


class Access(enum.IntFlag):
    """The access flags of verbs, IBV_ACCESS_..."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    ON_DEMAND = 64
    RELAXED_ORDERING = 1 << 20


class Mapping(enum.IntEnum):
    """How memory of a device is exported. DEFAULT chooses by the NIC and the memory."""

    DEFAULT = 0
    STANDARD = 1
    PCIE = 2


class Path(enum.IntFlag):
    """The methods to register memory."""

    DMABUF = 1
    DMABUF_DATA_DIRECT = 2
    PEERMEM = 4
    HOST = 8
    ON_DEMAND = 16


class Error(OSError):
    """A failed call. `errno` is that of verbs, the kernel or a driver; 524 is the kernel's ENOTSUPP. `strerror` has the
    call, what was tried, the cause and a remedy."""


def _load() -> ctypes.CDLL:
    name = "librdmabuf_c.so.0"
    beside = pathlib.Path(__file__).parent / name
    path = os.environ.get("RDMABUF_C_LIBRARY") or (str(beside) if beside.exists() else name)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"{error}. The module rdmabuf needs {name}, which is in its wheel, and libibverbs.so.1 of rdma-core 35 "
            "or newer (Debian: libibverbs1).") from error


_library = _load()
_pointer = ctypes.c_void_p
_size = ctypes.c_size_t


class _External(ctypes.Structure):
    _fields_ = [("size", _size), ("address", ctypes.c_uint64), ("length", ctypes.c_uint64), ("fd", ctypes.c_int),
                ("mapping", ctypes.c_int), ("offset", ctypes.c_uint64), ("pci_address", ctypes.c_char_p)]


class _Export(ctypes.Structure):
    _fields_ = [("size", _size), ("fd", ctypes.c_int), ("mapping", ctypes.c_int), ("offset", ctypes.c_uint64),
                ("length", ctypes.c_uint64)]


class _Options(ctypes.Structure):
    _fields_ = [("size", _size), ("access", ctypes.c_int), ("relaxed_ordering", ctypes.c_int),
                ("device_memory", ctypes.c_int), ("paths", ctypes.c_int), ("mapping", ctypes.c_int),
                ("has_iova", ctypes.c_int), ("iova", ctypes.c_uint64)]


class _Allocation(ctypes.Structure):
    _fields_ = [("size", _size), ("base", ctypes.c_uint64), ("length", ctypes.c_uint64), ("generation", ctypes.c_uint64),
                ("kind", ctypes.c_int), ("c2c", ctypes.c_int), ("exporter", ctypes.c_char * 24),
                ("pci_address", ctypes.c_char * 24)]


class _CacheOptions(ctypes.Structure):
    _fields_ = [("size", _size), ("checked", ctypes.c_int), ("reserved", ctypes.c_int), ("max_regions", _size),
                ("max_bytes", ctypes.c_uint64), ("registration", ctypes.POINTER(_Options))]


class _Keys(ctypes.Structure):
    _fields_ = [("size", _size), ("lkey", ctypes.c_uint32), ("rkey", ctypes.c_uint32), ("address", ctypes.c_uint64),
                ("length", ctypes.c_uint64)]


class _Statistics(ctypes.Structure):
    _fields_ = [("size", _size)] + [(name, ctypes.c_uint64) for name in
                                    ("hits", "misses", "evictions", "stale", "invalidations", "regions", "bytes")]


class _Mr(ctypes.Structure):
    """struct ibv_mr"""

    _fields_ = [("context", _pointer), ("pd", _pointer), ("addr", _pointer), ("length", _size),
                ("handle", ctypes.c_uint32), ("lkey", ctypes.c_uint32), ("rkey", ctypes.c_uint32)]


class _PyBuffer(ctypes.Structure):
    """Py_buffer"""

    _fields_ = [("buf", _pointer), ("obj", _pointer), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", _pointer),
                ("strides", _pointer), ("suboffsets", _pointer), ("internal", _pointer)]


class _DlTensor(ctypes.Structure):
    """DLTensor of dlpack.h"""

    _fields_ = [("data", _pointer), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


# Prototypes of this module alone: those of attributes of ctypes.pythonapi belong to the whole process.
_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi))
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(_pointer, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


def _declare(name: str, result: Any, *arguments: Any) -> None:
    function = getattr(_library, name)
    function.restype = result
    function.argtypes = arguments


_declare("rdmabuf_version", ctypes.c_char_p)
_declare("rdmabuf_last_error", ctypes.c_char_p)
_declare("rdmabuf_explain", _size, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, _size)
_declare("rdmabuf_resolver_create", ctypes.c_int, ctypes.POINTER(_pointer))
_declare("rdmabuf_resolver_destroy", None, ctypes.POINTER(_pointer))
_declare("rdmabuf_external_add", ctypes.c_int, _pointer, ctypes.POINTER(_External), ctypes.POINTER(_pointer))
_declare("rdmabuf_external_remove", None, ctypes.POINTER(_pointer))
_declare("rdmabuf_find", ctypes.c_int, _pointer, _pointer, ctypes.POINTER(_Allocation))
_declare("rdmabuf_export_range", ctypes.c_int, _pointer, _pointer, _size, ctypes.c_int, ctypes.POINTER(_Export))
_declare("rdmabuf_register_many", ctypes.c_int, _pointer, ctypes.POINTER(_pointer), _size, _pointer, _size,
         ctypes.POINTER(_Options), ctypes.POINTER(_pointer))
_declare("rdmabuf_mr", ctypes.POINTER(_Mr), _pointer, _size)
_declare("rdmabuf_iova", ctypes.c_uint64, _pointer)
_declare("rdmabuf_trail", ctypes.c_char_p, _pointer)
_declare("rdmabuf_trail_json", ctypes.c_char_p, _pointer)
_declare("rdmabuf_verify", ctypes.c_int, _pointer)
_declare("rdmabuf_deregister", ctypes.c_int, ctypes.POINTER(_pointer))
_declare("rdmabuf_cache_create", ctypes.c_int, _pointer, ctypes.POINTER(_pointer), _size, ctypes.POINTER(_CacheOptions),
         ctypes.POINTER(_pointer))
_declare("rdmabuf_cache_destroy", None, ctypes.POINTER(_pointer))
_declare("rdmabuf_cache_acquire", ctypes.c_int, _pointer, _pointer, _size, ctypes.c_int, ctypes.POINTER(_Keys),
         ctypes.POINTER(_pointer))
_declare("rdmabuf_lease_keys", ctypes.c_int, _pointer, _size, ctypes.POINTER(_Keys))
_declare("rdmabuf_lease_release", None, ctypes.POINTER(_pointer))
_declare("rdmabuf_cache_invalidate", None, _pointer, _pointer, _size)
_declare("rdmabuf_cache_statistics", ctypes.c_int, _pointer, ctypes.POINTER(_Statistics))
_declare("rdmabuf_nearest", ctypes.c_int, _pointer, _pointer, _pointer, _size)
_declare("rdmabuf_flush", ctypes.c_int, _pointer, _pointer)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")  # strerror(3) is in the encoding of the locale


def _sized(struct: type) -> Any:
    made = struct()
    made.size = ctypes.sizeof(struct)
    return made


def _check(result: int) -> int:
    if result < 0:
        raise Error(-result, _text(_library.rdmabuf_last_error()))
    return result


def _number(value: Any, bits: int, name: str) -> int:
    """Refuses what ctypes would cut off."""
    number = operator.index(value)
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{name} {number} is not from 0 to 2^{bits} - 1")
    return number


class _End(weakref.ref):
    """Calls a C function with a handle when the owner of the handle is gone, and before what the owner refers to is freed.

    This call is no step of Python; only within three calls of the recursion limit, ctypes refuses it. The handler of a signal
    can raise at the first step of a __del__(), which then does nothing; a signal that arrives during a garbage collection
    waits for this step. The collector calls the function because _ends, which is not garbage, refers to this object."""

    __slots__ = ("_as_parameter_",)
    __hash__ = object.__hash__  # That of a reference is that of its owner.

    def __new__(cls, owner: Any, function: Any, _: Any) -> Any:
        return super().__new__(cls, owner, function)

    def __init__(self, owner: Any, function: Any, handle: Any) -> None:
        super().__init__(owner, function)  # type: ignore[call-arg]
        self._as_parameter_ = ctypes.byref(handle)  # what ctypes passes to the function
        _ends.add(self)


_ends: set[_End] = set()


class _State:
    """What has to end with its owner: a handle that the library has written, or a locked buffer, and the memory that stays
    alive until then."""

    __slots__ = ("end", "handle", "memory", "others", "lock", "reference")

    def __init__(self, owner: Any, end: Any, function: Any, handle: Any, memory: Any = None, others: Any = None) -> None:
        self.end, self.handle, self.memory, self.others = end, handle, memory, others
        self.lock = threading.RLock()
        self.reference: _End | None = _End(owner, function, handle)

    def detach(self) -> None:
        """From now on, the reference calls nothing. It is forgotten last: where it is known, it may still call."""
        _ends.discard(self.reference)
        self.reference = None

    def is_free(self) -> bool:
        """Whether another thread than that of the owner may end the handle."""
        is_open = self.handle.obj if isinstance(self.handle, _PyBuffer) else self.handle
        return self.reference is None or not is_open

    def finish(self) -> None:
        if _library is None:
            return  # The interpreter ends: the reference ends the handle.
        with self.lock:
            self.end(self.handle)
            if self.memory is not None:
                self.memory.release()
            self.memory = self.others = None
            self.detach()


# Those whose owners are gone, and whose regions have memory windows; or whose end a signal has interrupted.
_orphans: list[_State] = []


def _end_orphans() -> None:
    failures = 0  # A device that was removed can fail for ever, and each call tries only a few of its regions again.
    for state in list(_orphans):
        if failures == 8:
            return
        if state.is_free() and state.lock.acquire(blocking=False):  # Otherwise another thread ends it.
            try:
                try:
                    state.finish()
                except Error:
                    _orphans.append(state)  # behind all others
                    failures += 1
                with contextlib.suppress(ValueError):  # Another thread has ended it.
                    _orphans.remove(state)
            finally:
                state.lock.release()


class _Owner:
    """The owner of a _State."""

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is None or _library is None:
            return  # __init__() failed, or the interpreter ends.
        _orphans.append(state)
        state.detach()
        state.finish()  # Python writes an error to stderr, and the next call tries again.
        with contextlib.suppress(ValueError):  # Another thread has ended it.
            _orphans.remove(state)


class _BufferLock(_Owner):
    """Keeps the bytes of the buffer protocol at their place until its last reference ends."""

    def __init__(self) -> None:
        self.buffer = _PyBuffer()
        self._state = _State(self, _release_buffer, _release_buffer, self.buffer)


# DLDeviceType of dlpack.h: those whose tensors have an address, and whether a driver must know it. The others, such as OpenCL
# and Vulkan, have handles.
_ADDRESSES = {1: False,  # CPU
              2: True,  # CUDA
              3: False,  # host memory that CUDA has pinned
              10: True,  # ROCm
              11: False,  # host memory that ROCm has pinned
              13: False,  # managed memory of CUDA
              14: False}  # oneAPI, which has all kinds


class _Memory:
    """The address and the length of an object, whose memory stays alive and at its place as long as this does."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._view: Any = None  # what keeps the bytes of the buffer protocol at their place
        self.readonly = False
        self.of_device = False  # The object says that it is memory of a device.
        try:
            self._find(owner)
            self.address = _number(self.address, 64, "the address")
            self.length = operator.index(self.length)
            if self.length <= 0:
                raise ValueError(f"{type(owner).__name__} has no bytes to register")
            if not self.address and not isinstance(owner, tuple):
                raise TypeError(f"{type(owner).__name__} has no address: its data is at 0")
            _number(self.address + self.length - 1, 64, "the last address")
        except BaseException:
            self.release()
            raise

    def _find(self, owner: Any) -> None:
        try:
            self._describe(owner)
        except RecursionError:
            raise
        except (KeyError, RuntimeError, BufferError) as error:  # of a dict, a sparse tensor, and __dlpack__()
            raise TypeError(f"{type(owner).__name__} has no address: {error}") from error

    def _describe(self, owner: Any) -> None:
        if isinstance(owner, tuple):
            if len(owner) != 2:
                raise TypeError(f"a tuple of memory is (address, length), not {owner}")
            self.address, self.length = owner
        elif all(callable(getattr(owner, name, None)) for name in ("data_ptr", "element_size", "numel", "is_contiguous")):
            self._from_tensor(owner)
        elif hasattr(owner, "__cuda_array_interface__"):
            self._from_cuda(owner.__cuda_array_interface__)
        else:
            self._from_host(owner)

    def _from_tensor(self, tensor: Any) -> None:
        """A tensor of PyTorch, whose __cuda_array_interface__ and __dlpack__ refuse gradients and some types of elements."""
        if not tensor.is_contiguous():
            raise ValueError(f"the elements are not contiguous: strides {tuple(tensor.stride())} for shape "
                             f"{tuple(tensor.shape)}")
        if getattr(tensor, "is_conj", bool)() or getattr(tensor, "is_neg", bool)():
            raise ValueError("the memory of a conjugated or negated view has other values: resolve it first, with "
                             "resolve_conj() or resolve_neg()")
        # The program can give the tensor other memory: tensor.data = …
        self._owner = tensor = tensor.detach()
        self.of_device = tensor.device.type != "cpu"
        self.address, self.length = tensor.data_ptr(), tensor.numel() * tensor.element_size()

    def _from_cuda(self, interface: dict) -> None:
        self.of_device = True
        if interface.get("mask") is not None:
            raise ValueError("__cuda_array_interface__ has a mask: register the data and the mask, each by itself")
        if interface["data"] is None:
            raise TypeError("__cuda_array_interface__ has no address: its data is None")
        self.address, self.readonly = interface["data"]
        kind, size = interface["typestr"][1:2], interface["typestr"][2:].partition("[")[0]
        if not size.isdigit() or kind == "t":  # The size of a bit field is in bits.
            raise ValueError(f"__cuda_array_interface__ has elements of an unknown size: {interface['typestr']!r}")
        item = int(size) * (4 if kind == "U" else 1)
        shape = interface["shape"]
        _require_contiguous(shape, interface.get("strides"), item)
        self.length = item * math.prod(shape)

    def _from_host(self, owner: Any) -> None:
        lock = _BufferLock()
        buffer = lock.buffer
        try:
            # The garbage collector sees to what a memoryview refers, so that an object that refers to its own Region can end.
            # Some elements of NumPy, such as datetime64, have no memoryview.
            with contextlib.suppress(ValueError):
                self._view = memoryview(owner)
            _get_buffer(owner if self._view is None else self._view, ctypes.byref(buffer), 0)
        except BufferError as error:
            raise ValueError(f"the elements of {type(owner).__name__} are not contiguous: {error}") from error
        except (TypeError, ValueError):  # Before NumPy 1.20, dates have no buffer: ValueError.
            if not hasattr(owner, "__dlpack__"):
                raise TypeError(f"{type(owner).__name__} has neither __cuda_array_interface__ nor the buffer protocol nor "
                                "__dlpack__; pass (address, length)") from None
            self._from_dlpack(owner.__dlpack__())
            return
        if self._view is not None and "O" in re.sub(":[^:]*:", "", self._view.format):  # without the names of members
            raise TypeError(f"the elements of {type(owner).__name__} are references to Python objects")
        self.address, self.length, self.readonly = buffer.buf or 0, buffer.len, bool(buffer.readonly)
        if self._view is None:
            self._view = lock

    def _from_dlpack(self, capsule: Any) -> None:
        tensor = _DlTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
        if tensor.device_type not in _ADDRESSES:
            raise TypeError(f"{type(self._owner).__name__} is on a device of the type {tensor.device_type} of DLPack, whose "
                            "tensors have no address")
        self.of_device = _ADDRESSES[tensor.device_type]
        shape = tensor.shape[:tensor.ndim]
        _require_contiguous(shape, tensor.strides[:tensor.ndim] if tensor.strides else None, 1)
        self._owner = (self._owner, capsule)
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.length = (tensor.bits * tensor.lanes * math.prod(shape) + 7) // 8

    def allow(self, access: int, resolver: Resolver | None) -> None:
        if self.of_device:
            found = _sized(_Allocation)
            _check(_library.rdmabuf_find(_resolver(resolver), self.address, ctypes.byref(found)))
            if found.kind == 0:
                raise Error(_errno.EFAULT, "the object is on a device, but no driver that this process has loaded knows its "
                                           "address, so it would be registered as host memory: add its dma-buf with "
                                           "Resolver.add()")
        if self.readonly and access & (Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC):
            raise Error(_errno.EACCES, "the object is read only: register it with REMOTE_READ alone")

    def release(self) -> None:
        self._view = self._owner = None


def _require_contiguous(shape: Any, strides: Any, item: int) -> None:
    if any(extent < 0 for extent in shape):
        raise ValueError(f"a negative extent: shape {tuple(shape)}")
    if strides is None:
        return
    if len(strides) != len(shape):
        raise ValueError(f"not as many strides as extents: strides {tuple(strides)} for shape {tuple(shape)}")
    expected = item
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            raise ValueError(f"the elements are not contiguous: strides {tuple(strides)} for shape {tuple(shape)}")
        expected *= extent


def _pd_pointer(pd: Any) -> int:
    """Returns the address of the ibv_pd. pyverbs has it in the C part of its object: the word that leads to a struct with
    this handle. The next word is the Context. After close(), they are 0 and None, and pyverbs reads the handle from address 0.
    """
    if isinstance(pd, int) and not isinstance(pd, bool):
        return _number(pd, 64, "the address of the ibv_pd")
    pyverbs = sys.modules.get("pyverbs.pd")
    if pyverbs is None or not isinstance(pd, pyverbs.PD):
        raise TypeError("a protection domain is a pyverbs PD, or the address of an ibv_pd as an int")
    word = ctypes.sizeof(_pointer)
    words = list((_pointer * (pyverbs.PD.__basicsize__ // word)).from_address(id(pd)))[2:]
    if (None, id(None)) in zip(words, words[1:]):
        raise ValueError(f"the {type(pd).__name__} was closed")
    for candidate in words:
        if candidate and candidate % word == 0 and ctypes.c_uint32.from_address(candidate + word).value == pd.handle:
            return candidate
    raise TypeError(f"no ibv_pd was found in {type(pd).__name__}; pass its address as an int")


def _pd_list(pds: Any) -> list:
    return list(pds) if isinstance(pds, (list, tuple)) else [pds]


def _pd_array(pds: list) -> ctypes.Array:
    return (_pointer * len(pds))(*(_pd_pointer(pd) for pd in pds))


class _Handle(_Owner):
    """An object of the C library, which writes the handle. It ends with its last reference. It cannot be copied, because
    each copy would destroy it."""

    _end = ""  # the function that ends the handle

    def __init__(self, memory: Any = None, *others: Any) -> None:
        _end_orphans()
        self._handle = _pointer()
        self._state = _State(self, self._end_handle, getattr(_library, self._end), self._handle, memory, others)

    @classmethod
    def _end_handle(cls, handle: ctypes.c_void_p) -> None:
        if handle:
            _check(getattr(_library, cls._end)(ctypes.byref(handle)) or 0)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied")


class Resolver(_Handle):
    """Finds out what an address belongs to. A program needs one of its own only to `add` memory, and must
    then pass it as `resolver` to each call that uses this memory: other calls try the address as host memory."""

    _end = "rdmabuf_resolver_destroy"

    def __init__(self) -> None:
        super().__init__()
        _check(_library.rdmabuf_resolver_create(ctypes.byref(self._handle)))

    def add(self, fd: int, address: int, length: int, offset: int = 0, *, mapping: Mapping = Mapping.STANDARD,
            pci_address: str = "") -> External:
        """Adds memory for which the program has a dma-buf, until the result is closed or its last reference ends. The
        descriptor is duplicated. `address` and `offset` are equal modulo the page size. After close(), and before the memory
        is freed or replaced, call invalidate() of each Cache(checked=False) that used it."""
        memory = _sized(_External)
        memory.address, memory.length = _number(address, 64, "the address"), _number(length, 64, "the length")
        memory.fd, memory.offset = _number(fd, 31, "descriptor"), _number(offset, 64, "the offset")
        if "\0" in pci_address:
            raise ValueError("the PCI address contains a zero")
        memory.mapping, memory.pci_address = Mapping(mapping), pci_address.encode()
        external = External(self)
        _check(_library.rdmabuf_external_add(self._handle, ctypes.byref(memory), ctypes.byref(external._handle)))
        return external


_Self = TypeVar("_Self", bound="_Context")


class _Context:
    """An object that a with statement closes."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class _Closing(_Handle, _Context):
    """An object that ends with close(), at the end of a with statement, or with its last reference. A call in one thread
    and close() in another wait for each other.

    The handler of a signal can raise or call close() between any two steps of Python, but not during a call of the library.
    So the library itself writes the handle into this object. When the library has ended the handle, it sets the handle to
    None. Only then the memory is released."""

    def __init__(self, memory: Any = None, *others: Any) -> None:
        super().__init__(memory, *others)
        self._lock = self._state.lock

    def close(self) -> None:
        self._state.finish()

    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise ValueError(f"the {type(self).__name__} was closed")
        return self._handle


class External(_Closing):
    """Memory that was added to a resolver, until close()."""

    _end = "rdmabuf_external_remove"

    def __init__(self, resolver: Resolver) -> None:
        super().__init__(None, resolver)


_shared = Resolver()


def _resolver(given: Resolver | None) -> ctypes.c_void_p:
    if not isinstance(given, (Resolver, type(None))):
        raise TypeError(f"resolver is a Resolver, not {type(given).__name__}")
    return (_shared if given is None else given)._handle


class Region(_Closing):
    """Registered memory, until close(). Keeps the object alive and, for the buffer protocol, at its place."""

    _end = "rdmabuf_deregister"

    def __init__(self, memory: _Memory, pds: list, resolver: Resolver | None) -> None:
        super().__init__(memory, pds, resolver)
        self.address: int = memory.address
        self.length: int = memory.length

    def mr(self, i: int = 0) -> int:
        """The address of the ibv_mr on protection domain `i`."""
        with self._lock:
            return ctypes.cast(self._mr(i), _pointer).value or 0

    def keys(self, i: int = 0) -> tuple[int, int]:
        """The lkey and the rkey on protection domain `i`."""
        with self._lock:
            found = self._mr(i).contents
            return found.lkey, found.rkey

    def _mr(self, i: int) -> Any:
        found = _library.rdmabuf_mr(self._open(), i) if 0 <= operator.index(i) < 1 << 32 else None
        if not found:
            raise IndexError(f"the region has no protection domain {i}, or was deregistered on it")
        return found

    @property
    def lkey(self) -> int:
        return self.keys()[0]

    @property
    def rkey(self) -> int:
        return self.keys()[1]

    @property
    def iova(self) -> int:
        """The address of the first byte for work requests, here and at the peer."""
        with self._lock:
            return _library.rdmabuf_iova(self._open())

    @property
    def trail(self) -> list[dict]:
        """The attempts to register the memory: path, call, errno, device, exporter, meaning and remedy of each."""
        with self._lock:
            return json.loads(_text(_library.rdmabuf_trail_json(self._open())))

    def verify(self) -> None:
        """Asks the driver whether the memory is still what was registered. Raises ENODEV if it was freed or replaced."""
        with self._lock:
            _check(_library.rdmabuf_verify(self._open()))

    def close(self) -> None:
        """Deregisters the memory. Raises EBUSY while memory windows are bound to it."""
        super().close()

    def __str__(self) -> str:
        with self._lock:
            return _text(_library.rdmabuf_trail(self._handle)) if self._handle else "closed"


def register(pd: Any, obj: Any, access: int = Access.LOCAL_WRITE, *, relaxed_ordering: bool = False,
             device_memory: bool = False, mapping: Mapping = Mapping.DEFAULT, iova: int | None = None,
             paths: Path = Path(0), resolver: Resolver | None = None) -> Region:
    """Registers all bytes of `obj` with one protection domain, or with all of a list or none.

    Memory of a device is never registered as host memory. `device_memory` refuses other memory with EFAULT. `paths` are the
    methods that may be tried, in the order of their values; by default DMABUF, then HOST, or ON_DEMAND for managed memory.
    PEERMEM needs the kernel module nvidia_peermem or one like it. An `access` of 0 means LOCAL_WRITE. A read-only object
    needs REMOTE_READ alone.
    Raises Error with the errno of the first attempt that called a driver or verbs (for memory that is not that of a device,
    without a dma-buf, if there is one); TypeError and ValueError for objects that have no address or whose elements are not
    contiguous."""
    pds = _pd_list(pd)
    memory = _Memory(obj)
    region = Region(memory, pds, resolver)
    try:
        access = _number(access, 31, "access") or int(Access.LOCAL_WRITE)
        memory.allow(access, resolver)
        options = _sized(_Options)
        options.access, options.mapping = access, Mapping(mapping)
        options.relaxed_ordering, options.device_memory = bool(relaxed_ordering), bool(device_memory)
        options.paths = _number(paths, 31, "paths")
        options.has_iova = iova is not None
        options.iova = _number(iova or 0, 64, "iova")
        _check(_library.rdmabuf_register_many(_resolver(resolver), _pd_array(pds), len(pds), memory.address,
                                              memory.length, ctypes.byref(options), ctypes.byref(region._handle)))
    except BaseException:
        region.close()
        raise
    return region


class Export(NamedTuple):
    """A dma-buf. The program closes `fd` with os.close()."""

    fd: int
    offset: int
    length: int
    mapping: Mapping


def export(obj: Any, mapping: Mapping = Mapping.DEFAULT, *, resolver: Resolver | None = None) -> Export:
    """Exports the memory of `obj` as a dma-buf, for other registration functions. Raises EFAULT for host memory, and
    EOPNOTSUPP for host memory that a GPU's driver pinned and does not export."""
    made = _sized(_Export)
    made.fd = -1
    memory = _Memory(obj)
    try:
        _check(_library.rdmabuf_export_range(_resolver(resolver), memory.address, memory.length, Mapping(mapping),
                                             ctypes.byref(made)))
        memory.release()
        return Export(made.fd, made.offset, made.length, Mapping(made.mapping))
    except BaseException:
        if made.fd >= 0:
            os.close(made.fd)
        memory.release()
        raise


class Lease(_Closing):
    """The right to use a registration of a cache, until close(). Keeps the object and the cache alive. Memory windows that are
    bound to it must be deallocated before: a registration that cannot end stays, and does not keep its memory."""

    _end = "rdmabuf_lease_release"

    def __init__(self, memory: _Memory, cache: Cache) -> None:
        super().__init__(memory, cache)
        self._count = len(cache._pds)
        self.address: int = memory.address
        self.length: int = memory.length

    def keys(self, i: int = 0) -> tuple[int, int]:
        """The lkey and the rkey on protection domain `i`."""
        keys = _sized(_Keys)
        with self._lock:
            handle = self._open()
            if not 0 <= operator.index(i) < self._count:
                raise IndexError(f"the lease has no protection domain {i}")
            _check(_library.rdmabuf_lease_keys(handle, i, ctypes.byref(keys)))
        return keys.lkey, keys.rkey

    @property
    def lkey(self) -> int:
        return self.keys()[0]

    @property
    def rkey(self) -> int:
        """A peer that has it can access the whole registered range, which may be longer than the object, with all accesses of
        the registration, which may be more than were acquired."""
        return self.keys()[1]


class _CacheHandle(_Handle):
    """The Cache refers to it, and each call of another thread until it returns. It keeps the protection domains."""

    _end = "rdmabuf_cache_destroy"


class Cache(_Context):
    """Keeps registrations for later use, until close().

    With `checked`, each use asks the driver whether the memory was replaced. Host memory, for which no driver can say
    it, is registered for each lease. Without it, the program must call invalidate() before memory is freed, and after
    it has closed an External: the cache otherwise returns keys of the old memory.
    `paths` are those of register(). Several threads can use a cache at the same time; the last call destroys a cache that
    another thread has closed."""

    def __init__(self, pds: Any, *, checked: bool = True, max_regions: int = 0, max_bytes: int = 0, paths: Path = Path(0),
                 resolver: Resolver | None = None) -> None:
        self._pds, self._resolver = _pd_list(pds), resolver
        self._cache: _CacheHandle | None = _CacheHandle(None, self._pds)
        options = _sized(_CacheOptions)
        options.checked = bool(checked)
        options.max_regions, options.max_bytes = _number(max_regions, 64, "max_regions"), _number(max_bytes, 64, "max_bytes")
        registration = _sized(_Options)
        registration.paths = _number(paths, 31, "paths")
        options.registration = ctypes.pointer(registration)
        _check(_library.rdmabuf_cache_create(_resolver(resolver), _pd_array(self._pds), len(self._pds),
                                             ctypes.byref(options), ctypes.byref(self._cache._handle)))

    def _use(self) -> _CacheHandle:
        """The cache, which exists as long as the result."""
        cache = self._cache
        if cache is None:
            raise ValueError("the Cache was closed")
        return cache

    def acquire(self, obj: Any, access: int = Access.LOCAL_WRITE) -> Lease:
        """Returns a lease on a registration that contains all bytes of `obj`, and registers them if there is none."""
        memory = _Memory(obj)
        lease = Lease(memory, self)
        try:
            memory.allow(access, self._resolver)
            _pd_array(self._pds)  # Refuses domains that were closed.
            cache = self._use()
            _check(_library.rdmabuf_cache_acquire(cache._handle, memory.address, memory.length,
                                                  _number(access, 31, "access"), None, ctypes.byref(lease._handle)))
        except BaseException:
            lease.close()
            raise
        return lease

    def invalidate(self, address: int, length: int) -> None:
        """Deregisters what overlaps a range that was freed or will be."""
        cache = self._use()
        _library.rdmabuf_cache_invalidate(cache._handle, _number(address, 64, "the address"),
                                          _number(length, 64, "the length"))

    @property
    def statistics(self) -> dict[str, int]:
        found = _sized(_Statistics)
        cache = self._use()
        _check(_library.rdmabuf_cache_statistics(cache._handle, ctypes.byref(found)))
        return {name: getattr(found, name) for name, *_ in _Statistics._fields_[1:]}

    def close(self) -> None:
        self._cache = None


def nearest(obj: Any, *, resolver: Resolver | None = None) -> list[str]:
    """Returns the names of the RDMA devices, the nearest to the memory first."""
    memory = _Memory(obj)
    try:
        memory.allow(0, resolver)
        count = 64
        while True:
            names = ((ctypes.c_char * 64) * count)()
            found = _check(_library.rdmabuf_nearest(_resolver(resolver), memory.address, names, count))
            if found <= count:
                return [name.value.decode() for name in names[:found]]
            count = found
    finally:
        memory.release()


def flush(obj: Any, *, resolver: Resolver | None = None) -> bool:
    """Makes completed RDMA writes visible to work that is submitted to the GPU afterwards. Returns False if the memory
    does not need it. Raises EOPNOTSUPP if the device cannot: then read the last bytes back through the NIC."""
    memory = _Memory(obj)
    try:
        memory.allow(0, resolver)
        return _check(_library.rdmabuf_flush(_resolver(resolver), memory.address)) == 0
    finally:
        memory.release()


def explain(errno: int, call: str = "") -> str:
    """Returns the name of an errno, also of 524, and what it means when `call` ("ibv_reg_dmabuf_mr") fails with it."""
    text = ctypes.create_string_buffer(512)
    _library.rdmabuf_explain(_number(abs(operator.index(errno)), 31, "errno"), call.encode() or None, text, len(text))
    return _text(text.value)


def version() -> str:
    """Returns the version of librdmabuf_c."""
    return _library.rdmabuf_version().decode()
