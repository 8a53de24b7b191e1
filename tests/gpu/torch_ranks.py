# SPDX-License-Identifier: BSD-3-Clause
"""One rank of PyTorch's torch.distributed on GPU 0, with NCCL and the plugin. tests/gpu/torch starts the ranks.

A copy between the GPU and pageable memory must not wait for NCCL's kernel on softverbs, hence the calls of synchronize()."""

import datetime
import os
import signal
import subprocess
import sys

import torch
import torch.distributed as dist

scenario, rank, ranks, rendezvous = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def say(text):
    print(f"rank {rank}: {text}", flush=True)


def connect(number):
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}.{number}", rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=60))


def abort():
    dist.distributed_c10d._abort_process_group()
    say("aborted")


def expect(condition, text):
    torch.cuda.synchronize()
    if not condition():
        sys.exit(f"rank {rank}: wrong result of {text}")


def numbers(count, dtype):
    return (torch.arange(count, device="cuda") % 13).to(dtype)


def all_reduce(count, dtype=torch.float32, group=None):
    values = numbers(count, dtype) + rank
    dist.all_reduce(values, group=group)
    expect(lambda: torch.equal(values, numbers(count, dtype) * ranks + ranks * (ranks - 1) // 2), f"all_reduce {count}")


def all_to_all(count):
    sent = torch.arange(count, device="cuda") + rank * count
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    part = torch.arange(rank * (count // ranks), (rank + 1) * (count // ranks), device="cuda")
    expect(lambda: torch.equal(received, torch.cat([part + each * count for each in range(ranks)])), f"all_to_all {count}")


def send_and_receive(sizes):
    """Sends a batch of messages to the next rank, and receives one from the rank before."""
    sent = [torch.full((size,), 100.0 * rank + i, device="cuda") for i, size in enumerate(sizes)]
    received = [torch.empty_like(each) for each in sent]
    before = (rank - 1) % ranks
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, each, (rank + 1) % ranks) for each in sent] +
                                       [dist.P2POp(dist.irecv, each, before) for each in received]):
        work.wait()
    expect(lambda: all(torch.all(each == 100 * before + i) for i, each in enumerate(received)), f"messages {sizes}")


def results():
    """Operations of each kind, with all results compared."""
    for count in 1, 1000, 4097, 1 << 20:
        for dtype in torch.float32, torch.bfloat16, torch.int64:
            all_reduce(count, dtype)
    for count in ranks, 1001 * ranks, ranks << 16:
        all_to_all(count)
    send_and_receive([1, 100, 5000, 1 << 18, 3])
    all_reduce(1 << 18, group=dist.new_group())
    say("all results are correct")
    dist.destroy_process_group()


def failover():
    """One of two merged devices of rank 1 is reset between operations."""
    for i in range(50):
        all_reduce(1 << 18)
        if i == 20 and rank == 1:
            subprocess.run([os.environ["SOFTVERBS"], "reset-device", "--pid", str(os.getpid()), "--device", "1"], check=True,
                           env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"})
            say("device 1 was reset")
    say("50 all_reduce are correct")
    dist.destroy_process_group()


def killed():
    """Rank 1 ends, and NCCL has to report it to rank 0 long before the timeout of 60 seconds."""
    all_reduce(1 << 20)
    if rank == 1:
        say("ends by SIGKILL")
        os.kill(os.getpid(), signal.SIGKILL)
    values = torch.ones(1 << 22, device="cuda")
    try:
        for _ in range(100):
            dist.all_reduce(values, async_op=True).wait()
    except dist.DistBackendError as error:
        say(str(error).splitlines()[0])
    else:
        sys.exit("rank 0: no error was reported")
    abort()


def aborted():
    """Rank 0 aborts an operation that rank 1 never begins. A new communicator of the same processes works."""
    all_reduce(1 << 18)
    if rank == 0:
        dist.all_reduce(torch.ones(1 << 22, device="cuda"), async_op=True)
    abort()
    connect(2)
    all_reduce(1 << 20)
    say("the results of a new communicator are correct")
    abort()


torch.cuda.set_device(0)
connect(1)
{"results": results, "failover": failover, "killed": killed, "aborted": aborted}[scenario]()
sys.stdout.flush()
os._exit(0)  # Without the destructors of PyTorch, which wait for communicators that were aborted.
