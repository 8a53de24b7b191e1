# SPDX-License-Identifier: BSD-3-Clause
"""What a program in Python does with a verbs device. Says how many steps it did; an exception is a failure."""

import errno
import mmap
import os
import sys

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from pyverbs.device import AllocDmAttr, Context, DM, get_device_list
from pyverbs.mr import DMMR, MR, DmaBufMR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR

PAGE = mmap.PAGESIZE
ALL = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
ZERO_BASED = ALL | e.IBV_ACCESS_ZERO_BASED

done = 0


def step(text):
    global done
    done += 1
    print(f"{done:2}. {text}", flush=True)


def check(found, wanted):
    assert found == wanted, f"{found!r} instead of {wanted!r}"


def refused_with(number, action):
    try:
        action()
    except PyverbsRDMAError as error:
        check(error.error_code, number)
        return
    raise AssertionError(f"not refused, with {errno.errorcode[number]}")


def pattern(length, seed):
    return bytes((seed + place * 7 + place // 251) % 256 for place in range(length))


class Ends:
    """Two connected queue pairs of one process."""

    def __init__(self, context, pd, extended=False):
        self.channel = CompChannel(context)
        if extended:
            self.cq = CQEX(context, CqInitAttrEx(cqe=64))
        else:
            self.cq = CQ(context, 64, None, self.channel, 0)
        self.qps = [self.make(context, pd, extended) for _ in range(2)]
        for here, there in (self.qps, reversed(self.qps)):
            self.connect(context, here, there)

    def make(self, context, pd, extended):
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_inline_data=16)
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = ALL
        if not extended:
            init = QPInitAttr(
                qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1
            )
            return QP(pd, init, attributes)
        operations = e.IBV_QP_EX_WITH_SEND | e.IBV_QP_EX_WITH_RDMA_WRITE
        init = QPInitAttrEx(
            qp_type=e.IBV_QPT_RC,
            scq=self.cq,
            rcq=self.cq,
            cap=cap,
            pd=pd,
            sq_sig_all=1,
            send_ops_flags=operations,
            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        )
        return QPEx(context, init, attributes)

    @staticmethod
    def connect(context, here, there):
        port = context.query_port(1)
        route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
        attributes = QPAttr(port_num=1)
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.dest_qp_num = there.qp_num
        attributes.qp_access_flags = ALL
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.min_rnr_timer = 12
        attributes.timeout = 14
        attributes.retry_cnt = attributes.rnr_retry = 7
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1, dlid=port.lid)
        here.to_rts(attributes)

    def completions(self, count):
        found = []
        for _ in range(10_000_000):
            number, some = self.cq.poll(count - len(found))
            found += some
            if len(found) == count:
                return found
        raise AssertionError(f"{len(found)} completions of {count}")

    def reach(self, opcode, here, rkey, there):
        """The status of a write or a read."""
        request = SendWR(opcode=opcode, num_sge=1, sg=[here])
        request.set_wr_rdma(rkey, there)
        self.qps[0].post_send(request)
        [completion] = self.completions(1)
        return completion.status


def open_device(name):
    check([device.name.decode() for device in get_device_list()].count(name), 1)
    context = Context(name=name)
    assert context.query_device().max_qp > 0
    assert context.query_device_ex().max_dm_size > 0
    check(context.query_port(1).state, e.IBV_PORT_ACTIVE)
    check(str(context.query_gid(1, 0)).count(":"), 7)
    table = context.query_gid_table(16)
    check(table[0].gid_str(), str(context.query_gid(1, 0)))
    check(context.query_pkey(1, 0) & 0x7FFF, 0x7FFF)
    step("a device with an active port, GIDs and device memory")
    return context


def host_memory(pd):
    region = MR(pd, 3 * PAGE, ALL)
    data = pattern(1000, 1)
    region.write(data, len(data), 17)
    check(region.read(len(data), 17), data)
    step("a region of host memory")
    return region


def device_memory(context, pd):
    memory = DM(context, AllocDmAttr(length=2 * PAGE))
    data = pattern(512, 2)
    memory.copy_to_dm(64, data, len(data))
    check(memory.copy_from_dm(64, len(data)), data)
    region = DMMR(pd, 2 * PAGE, ZERO_BASED, dm=memory, offset=0)
    refused_with(errno.EINVAL, lambda: DMMR(pd, 2 * PAGE, ZERO_BASED, dm=memory, offset=PAGE))
    step("device memory, copied to and from, and a region of it")
    return memory, region


def stand_in(pd):
    descriptor = os.memfd_create("pyverbs")
    os.ftruncate(descriptor, 4 * PAGE)
    region = DmaBufMR(pd, 2 * PAGE, ALL, dmabuf=descriptor, offset=PAGE)
    refused_with(errno.EINVAL, lambda: DmaBufMR(pd, 4 * PAGE, ALL, dmabuf=descriptor, offset=PAGE))
    closed = os.dup(descriptor)
    os.close(closed)
    refused_with(errno.EBADF, lambda: DmaBufMR(pd, PAGE, ALL, dmabuf=closed, offset=0))
    with open("/dev/null", "rb") as nothing:
        refused_with(
            errno.EINVAL, lambda: DmaBufMR(pd, PAGE, ALL, dmabuf=nothing.fileno(), offset=0)
        )
    step("a memfd registered as a dma-buf, and what is none refused")
    return mmap.mmap(descriptor, 4 * PAGE), region


def send_and_receive(ends, region):
    data = pattern(600, 3)
    region.write(data, len(data), 0)
    ends.cq.req_notify()
    ends.qps[1].post_recv(RecvWR(wr_id=7, num_sge=1, sg=[SGE(region.buf + PAGE, PAGE, region.lkey)]))
    ends.qps[0].post_send(
        SendWR(
            wr_id=8,
            opcode=e.IBV_WR_SEND_WITH_IMM,
            imm_data=0x12345678,
            num_sge=1,
            sg=[SGE(region.buf, len(data), region.lkey)],
            send_flags=e.IBV_SEND_SIGNALED,
        )
    )
    ends.channel.get_cq_event(ends.cq)
    ends.cq.ack_events(1)
    both = {completion.wr_id: completion for completion in ends.completions(2)}
    check({both[number].status for number in (7, 8)}, {e.IBV_WC_SUCCESS})
    check(both[7].byte_len, len(data))
    check(both[7].imm_data, 0x12345678)
    check(region.read(len(data), PAGE), data)
    step("a message with immediate data, waited for by an event")


def write_and_read(ends, region, memory, dm_region, mapping, dmabuf):
    # The region begins a page into the memfd; its first address is that page's offset there.
    data = pattern(2000, 4)
    region.write(data, len(data), 0)
    source = SGE(region.buf, len(data), region.lkey)
    check(ends.reach(e.IBV_WR_RDMA_WRITE, source, dmabuf.rkey, PAGE + 100), e.IBV_WC_SUCCESS)
    check(mapping[PAGE + 100 : PAGE + 100 + len(data)], data)
    check(set(mapping[: PAGE + 100]), {0})
    check(set(mapping[PAGE + 100 + len(data) :]), {0})

    secret = pattern(PAGE, 5)
    memory.copy_to_dm(0, secret, PAGE)
    target = SGE(region.buf + PAGE, PAGE, region.lkey)
    check(ends.reach(e.IBV_WR_RDMA_READ, target, dm_region.rkey, 0), e.IBV_WC_SUCCESS)
    check(region.read(PAGE, PAGE), secret)
    step("a write into the memfd, a read from the device memory")


def atomics(ends, region, mapping, dmabuf):
    result = SGE(region.buf, 8, region.lkey)
    place = PAGE + 512

    def atomic(opcode, operand, swap=0):
        request = SendWR(opcode=opcode, num_sge=1, sg=[result])
        request.set_wr_atomic(dmabuf.rkey, place, operand, swap)
        ends.qps[0].post_send(request)
        check(ends.completions(1)[0].status, e.IBV_WC_SUCCESS)
        return int.from_bytes(region.read(8, 0), sys.byteorder)

    mapping[place : place + 8] = (41).to_bytes(8, sys.byteorder)
    check(atomic(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 1), 41)
    check(atomic(e.IBV_WR_ATOMIC_CMP_AND_SWP, 42, 1 << 40), 42)
    check(atomic(e.IBV_WR_ATOMIC_CMP_AND_SWP, 42, 7), 1 << 40)
    check(mapping[place : place + 8], (1 << 40).to_bytes(8, sys.byteorder))
    step("atomics on the memfd")


def extended(context, pd, region):
    ends = Ends(context, pd, extended=True)
    data = pattern(300, 6)
    region.write(data, len(data), 0)
    ends.qps[1].post_recv(RecvWR(wr_id=1, num_sge=1, sg=[SGE(region.buf + PAGE, PAGE, region.lkey)]))
    here = ends.qps[0]
    here.wr_start()
    here.wr_id = 2
    here.wr_flags = e.IBV_SEND_SIGNALED
    here.wr_send()
    here.wr_set_sge(SGE(region.buf, len(data), region.lkey))
    here.wr_complete()
    found = {}
    for _ in range(10_000_000):
        if ends.cq.start_poll(PollCqAttr()) == errno.ENOENT:
            continue
        while True:
            found[ends.cq.wr_id] = ends.cq.status
            if ends.cq.poll_next() != 0:
                break
        ends.cq.end_poll()
        if len(found) == 2:
            break
    check(found, {1: e.IBV_WC_SUCCESS, 2: e.IBV_WC_SUCCESS})
    check(region.read(len(data), PAGE), data)
    step("the same by ibv_wr_* and an extended completion queue")


def wrong_key(ends, region, dmabuf):
    source = SGE(region.buf, 8, region.lkey)
    status = ends.reach(e.IBV_WR_RDMA_WRITE, source, dmabuf.rkey ^ 0x5555, PAGE)
    check(status, e.IBV_WC_REM_ACCESS_ERR)
    attributes, _ = ends.qps[0].query(e.IBV_QP_STATE)
    check(attributes.qp_state, e.IBV_QPS_ERR)
    step("a wrong key: an error completion, and a queue pair in the error state")


def main(name):
    context = open_device(name)
    pd = PD(context)
    region = host_memory(pd)
    memory, dm_region = device_memory(context, pd)
    mapping, dmabuf = stand_in(pd)
    ends = Ends(context, pd)
    step("two connected queue pairs")
    send_and_receive(ends, region)
    write_and_read(ends, region, memory, dm_region, mapping, dmabuf)
    atomics(ends, region, mapping, dmabuf)
    extended(context, pd, region)
    wrong_key(ends, region, dmabuf)
    context.close()
    step("everything closed")
    print(f"{done} steps done")


main(sys.argv[1])
