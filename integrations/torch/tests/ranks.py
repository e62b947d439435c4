"""What the processes of a group do in `test_distributed.py`. A program forks them: each has PyTorch already.

The device's collectives are compared with gloo's on the CPU, and trainings with those of one process.
"""

import contextlib
import os
import signal
import sys
import tempfile
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

NAME = torch._C._get_privateuse1_backend_name()
SECONDS = 60


def run(size, check, backend=None, timeout=SECONDS):
    """Runs a function of this file in each process of a group, and returns their statuses. One that hangs is killed."""
    check = globals()[check]
    if check in (two, four):
        # Seconds, which each process would spend.
        import torch._dynamo
        import torch.distributed.fsdp
        import torch.distributed.tensor.parallel  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(size):
            process = os.fork()
            if process == 0:
                os._exit(_member(size, rank, check, backend, timeout, f"file://{folder}/store"))
            processes.append(process)
        return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def _member(size, rank, check, backend, timeout, address):
    signal.alarm(SECONDS)
    torch.set_num_threads(1)
    status = 0
    try:
        dist.init_process_group(
            backend, init_method=address, rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
        )
        module().set_device(rank % module().device_count())
        check()
        dist.destroy_process_group()
    except BaseException:
        print(f"rank {rank}: {traceback.format_exc()}")
        status = 1
    sys.stdout.flush()
    return status


def module():
    return getattr(torch, NAME)


def error_of(call, *arguments, **options):
    """The text of the error that a call raises."""
    try:
        call(*arguments, **options)
    except Exception as error:
        return str(error)
    raise AssertionError("there was no error")


# Collectives


class Calls:
    """Each collective with tensors of one device. A method returns what it has written."""

    def __init__(self, device):
        self.device = device
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def numbers(self, *shape, dtype=torch.float32, root=0):
        """Numbers that differ between processes."""
        count = torch.Size(shape).numel()
        return (torch.arange(count).reshape(shape) + 100 * (self.rank + root)).to(dtype).to(self.device)

    def empty(self, *shape, dtype=torch.float32):
        return torch.full(shape, -1, dtype=dtype, device=self.device)

    def all_reduce(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8):
            tensor = self.numbers(3, 4, dtype=dtype)
            dist.all_reduce(tensor)
            yield tensor

    def all_reduce_by_other_operations(self):
        for operation in (dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
            tensor = self.numbers(5)
            dist.all_reduce(tensor, operation)
            yield tensor
        tensor = self.numbers(5, dtype=torch.int64)
        dist.all_reduce(tensor, dist.ReduceOp.BXOR)
        yield tensor

    def all_reduce_of_nothing_and_of_one(self):
        for shape in ((0,), ()):
            tensor = self.numbers(*shape)
            dist.all_reduce(tensor)
            yield tensor

    def all_reduce_coalesced(self):
        tensors = [self.numbers(3), self.numbers(2, 2)]
        dist.all_reduce_coalesced(tensors)
        yield from tensors

    def broadcast(self):
        for root in range(self.size):
            tensor = self.numbers(4)
            dist.broadcast(tensor, root)
            yield tensor

    def reduce(self):
        for root in range(self.size):
            tensor = self.numbers(4)
            dist.reduce(tensor, root)
            # What the others have afterwards is not defined.
            if self.rank == root:
                yield tensor

    def all_gather(self):
        tensors = [self.empty(2, 3) for _ in range(self.size)]
        dist.all_gather(tensors, self.numbers(2, 3))
        yield from tensors

    def all_gather_into_tensor(self):
        tensor = self.empty(self.size * 2, 3)
        dist.all_gather_into_tensor(tensor, self.numbers(2, 3))
        yield tensor

    def gather(self):
        tensors = [self.empty(3) for _ in range(self.size)] if self.rank == 1 else None
        dist.gather(self.numbers(3), tensors, dst=1)
        yield from tensors or ()

    def scatter(self):
        tensors = [self.numbers(3, root=part) for part in range(self.size)] if self.rank == 1 else None
        tensor = self.empty(3)
        dist.scatter(tensor, tensors, src=1)
        yield tensor

    def reduce_scatter(self):
        tensor = self.empty(3)
        dist.reduce_scatter(tensor, [self.numbers(3, root=part) for part in range(self.size)])
        yield tensor

    def reduce_scatter_tensor(self):
        for operation in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            tensor, given = self.empty(2, 3), self.numbers(self.size * 2, 3)
            dist.reduce_scatter_tensor(tensor, given, operation)
            yield tensor
            yield given

    def all_to_all(self):
        tensors = [self.empty(3) for _ in range(self.size)]
        dist.all_to_all(tensors, [self.numbers(3, root=part) for part in range(self.size)])
        yield from tensors

    def all_to_all_single(self):
        tensor = self.empty(self.size * 2)
        dist.all_to_all_single(tensor, self.numbers(self.size * 2))
        yield tensor
        # The process `rank` sends 1 + rank rows to each other one.
        tensor = self.empty(sum(range(1, self.size + 1)), 2)
        sent = [self.rank + 1] * self.size
        dist.all_to_all_single(tensor, self.numbers(sum(sent), 2), list(range(1, self.size + 1)), sent)
        yield tensor

    def several_as_one(self):
        gathered, scattered = [self.empty(self.size * 2) for _ in range(2)], [self.empty(2) for _ in range(2)]
        with dist._coalescing_manager():
            for tensor in gathered:
                dist.all_gather_into_tensor(tensor, self.numbers(2))
        with dist._coalescing_manager():
            for tensor in scattered:
                dist.reduce_scatter_tensor(tensor, self.numbers(self.size * 2))
        yield from gathered + scattered

    def send_and_receive(self):
        tensor = self.numbers(3)
        if self.rank == 0:
            dist.send(tensor, 1)
            dist.recv(tensor, 1)
        elif self.rank == 1:
            got = self.empty(3)
            assert dist.recv(got) == 0  # From any.
            dist.send(got * 2, 0)
            yield got
        yield tensor

    def several_to_peers(self):
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        tensor = self.empty(3)
        operations = [dist.P2POp(dist.isend, self.numbers(3), after), dist.P2POp(dist.irecv, tensor, before)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        yield tensor

    def functional(self):
        from torch.distributed import _functional_collectives as functional

        group = dist.group.WORLD
        yield functional.all_reduce(self.numbers(3), "sum", group) + 1
        yield functional.all_gather_tensor(self.numbers(3).contiguous(), 0, group) + 1
        yield functional.reduce_scatter_tensor(self.numbers(self.size).contiguous(), "avg", 0, group) + 1
        yield functional.broadcast(self.numbers(3), 1, group) + 1
        yield from functional.all_reduce_coalesced([self.numbers(3), self.numbers(2)], "sum", group)

    def objects(self):
        values = [None] * self.size
        dist.all_gather_object(values, {"rank": self.rank})
        assert values == [{"rank": rank} for rank in range(self.size)]
        values = [self.rank, "of", self.rank]
        dist.broadcast_object_list(values, 1, device=torch.device(self.device))
        assert values == [1, "of", 1]
        return ()


class CallsWithGaps(Calls):
    """Calls with tensors whose elements are apart in memory, which gloo gets as copies on each device."""

    def numbers(self, *shape, **options):
        return apart(super().numbers(*shape, **options))

    def empty(self, *shape, **options):
        return apart(super().empty(*shape, **options))


def apart(tensor):
    return tensor.repeat_interleave(2, -1)[..., ::2] if tensor.dim() else tensor


def collectives():
    """Each collective does on the device what it does on the CPU."""
    on_cpu = Calls("cpu")
    names = [name for name in vars(Calls) if not name.startswith("__") and name not in ("numbers", "empty")]
    compared = 0
    for name in names:
        try:
            expected = list(getattr(on_cpu, name)())
        except RuntimeError as error:
            # An older gloo: the device says the same.
            assert "does not support" in str(error), error
            assert error_of(list, getattr(Calls(NAME), name)()) == str(error)
            continue
        compared += 1
        for on_device in (Calls(NAME), CallsWithGaps(NAME)):
            found = list(getattr(on_device, name)())
            assert len(expected) == len(found), name
            for one, other in zip(expected, found):
                assert other.device.type == NAME, name
                assert torch.equal(one, other.cpu()), f"{name} of {on_device}: expected {one}, found {other}"
    assert compared >= 18


def layouts():
    """A tensor is exchanged by its elements, whatever their order in memory."""
    rank = dist.get_rank()
    rows = torch.arange(6.0, device=NAME).reshape(2, 3) * (rank + 1)
    tensor = rows.t().contiguous().t() if rank else rows
    dist.all_reduce(tensor)
    assert torch.equal(tensor.cpu(), torch.arange(6.0).reshape(2, 3) * 3)


def waits():
    """What is read after any kind of wait is there."""
    rank = dist.get_rank()

    def tensor():
        return torch.full((1000,), rank + 1.0, device=NAME)

    first = tensor()
    work = dist.all_reduce(first, async_op=True)
    while not work.is_completed():
        pass
    assert work.is_success() and work.wait() and first.sum().item() == 3000

    first = tensor()
    assert dist.all_reduce(first, async_op=True).get_future().wait()[0] is not None
    assert first.sum().item() == 3000

    # What continues a future computes on the device of the tensors, with derivatives.
    first, weight = tensor(), torch.tensor([2.0], device=NAME, requires_grad=True)
    doubled = dist.all_reduce(first, async_op=True).get_future().then(
        lambda future: future.value()[0] * weight + torch.zeros(1, device=NAME)
    )
    doubled.wait().sum().backward()
    assert weight.grad.item() == 3000

    # The work of the current stream before and after a collective is in its order.
    with torch.Stream(NAME):
        first = tensor()
        for _ in range(20):
            first.mul_(2)
        dist.all_reduce(first)
        first.add_(1)
        assert first[0].item() == 3 * 2**20 + 1

    # A leaf that wants a gradient is written as on the CPU, without a derivative.
    first = apart(tensor()).detach().requires_grad_()
    dist.all_reduce(first)
    assert first.sum().item() == 3000 and first.is_leaf

    # Another stream than the call's waits for the work, though the call's is busy.
    first, busy = apart(tensor()), torch.eye(400, device=NAME)
    module().synchronize()
    with torch.Stream(NAME):
        work = dist.all_reduce(first, async_op=True)
        for _ in range(30):
            busy = busy @ busy
    work.wait()
    assert first.sum().item() == 3000

    work = dist.isend(first, 1) if rank == 0 else dist.irecv(first, 0)
    assert not work.is_completed() and work.wait() and work.is_completed()


def refusals():
    """What gloo does not do is refused by name, and so are tensors that do not fit."""
    tensor = torch.ones(4, device=NAME)
    halved = dist._make_nccl_premul_sum(0.5)
    assert "PREMUL_SUM" in error_of(dist.all_reduce, tensor, halved)
    backend = dist.group.WORLD._get_backend(torch.device(NAME))
    assert "Backend registry does not support allocateTensor" in error_of(
        backend.allocate_tensor, 1, dtype=torch.float32, device=torch.device(NAME)
    )
    text = error_of(backend.allreduce, [torch.ones(1)], dist.AllreduceOptions())
    assert f"expected a tensor of `{NAME}`, found one of `cpu`" in text
    text = error_of(dist.reduce_scatter_tensor, torch.ones(3, device=NAME), tensor)
    assert "expected an input of 2 times the output's elements" in text


def groups():
    """A subgroup, and a barrier of each kind."""
    rank = dist.get_rank()
    own = [dist.new_group([0]), dist.new_group([1])][rank]
    tensor = torch.ones(1, device=NAME) * rank
    dist.all_reduce(tensor, group=own)
    assert tensor.item() == rank
    other = dist.new_group([1, 0], backend="registry")
    dist.broadcast(tensor, 1, group=other)
    assert tensor.item() == 1
    dist.barrier()
    dist.barrier(other)
    dist.barrier(device_ids=[0])
    dist.group.WORLD._get_backend(torch.device(NAME)).monitored_barrier(timedelta(seconds=SECONDS), False)


def exchanges():
    collectives()
    layouts()
    waits()
    refusals()
    groups()


# Training


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))


def batch(step):
    """A batch for all processes."""
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(step))


def losses(model, inputs, optimizer=torch.optim.SGD, gathered=lambda loss: loss, steps=4):
    """The losses of some steps, for the whole batch."""
    steps, optimizer = range(steps), optimizer(model.parameters(), 0.05)
    found = []
    for step in steps:
        loss = model(inputs(step)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(gathered(loss.detach()))
    return torch.stack([loss.cpu() for loss in found])


def mean(loss):
    """The mean of all processes' losses."""
    loss = loss.clone()
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    return loss


def part(step):
    """What this process has of a batch."""
    return batch(step).chunk(dist.get_world_size())[dist.get_rank()].to(NAME)


def assert_as_alone(found, model=network, **options):
    expected = losses(model(), batch, **options)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert expected[0] > expected[-1]


def data_parallel():
    """DistributedDataParallel has the losses of one process with the whole batch."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    device = module().current_device()
    assert_as_alone(losses(DistributedDataParallel(network().to(NAME), device_ids=[device]), part, gathered=mean))
    # Many small buckets; views of them as gradients; a parameter that one process does not use.
    options = dict(bucket_cap_mb=0.0001, gradient_as_bucket_view=True, find_unused_parameters=True)
    assert_as_alone(losses(DistributedDataParallel(network().to(NAME), **options), part, gathered=mean))
    # A hook, whose future continues the collective's.
    hooked = DistributedDataParallel(network().to(NAME))
    hooked.register_comm_hook(None, default_hooks.allreduce_hook)
    assert_as_alone(losses(hooked, part, gathered=mean))
    # Gradients of two backward passes, which are exchanged once.
    model = DistributedDataParallel(network().to(NAME))
    with model.no_sync():
        model(part(0)).square().mean().backward()
    model(part(1)).square().mean().backward()
    alone = network()
    (alone(batch(0)).square().mean() + alone(batch(1)).square().mean()).backward()
    for one, other in zip(alone.parameters(), model.parameters()):
        torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-5, atol=1e-6)


def sharded():
    """FSDP2 and tensors in parts have the losses and the numbers of one process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(NAME, (size,))

    model = network().to(NAME)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert_as_alone(losses(model, part, torch.optim.Adam, mean), optimizer=torch.optim.Adam)

    whole = torch.arange(32.0).reshape(8, 4)
    rows = distribute_tensor(whole.to(NAME), mesh, [Shard(0)])
    columns = distribute_tensor(whole.t().contiguous().to(NAME), mesh, [Shard(1)])
    assert torch.equal((rows @ columns).full_tensor().cpu(), whole @ whole.t())
    assert torch.equal(rows.redistribute(mesh, [Shard(1)]).to_local().cpu(), whole.chunk(size, 1)[rank])
    assert torch.equal(rows.redistribute(mesh, [Replicate()]).to_local().cpu(), whole)
    assert rows.sum().full_tensor().item() == whole.sum().item()

    def layers():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(layers().to(NAME), mesh, plan)
    assert_as_alone(losses(model, lambda step: batch(step).to(NAME)), layers)


def meshes():
    """A mesh of two dimensions: replicas of two shards each."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(NAME, (2, 2), mesh_dim_names=("replicas", "shards"))
    model = fully_shard(network().to(NAME), mesh=mesh)
    assert_as_alone(losses(model, part, gathered=mean))
    tensor = torch.ones(1, device=NAME) * dist.get_rank()
    dist.all_reduce(tensor, group=mesh["shards"].get_group())
    assert tensor.item() == {0: 1, 1: 1, 2: 5, 3: 5}[dist.get_rank()]


def two():
    exchanges()
    data_parallel()
    sharded()


def four():
    """Without the name of a backend."""
    assert dist.group.WORLD._get_backend(torch.device(NAME)).name() == "registry"
    data_parallel()
    sharded()
    meshes()
    dist.barrier()


# Failures


def leaves():
    """A process ends while the other one waits for it."""
    # Both are connected before one leaves.
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(4, device=NAME))
    if dist.get_rank() == 1:
        store.wait(["connected"])
        raise RuntimeError("this one leaves")
    store.set("connected", "")
    text = error_of(dist.all_reduce, torch.ones(4, device=NAME))
    print(f"error of the other: {text}")
    future = dist.all_reduce(torch.ones(4, device=NAME), async_op=True).get_future()
    print(f"error of a future: {error_of(future.wait)}")


def is_late():
    """A process waits for longer than the group allows."""
    done = os.path.join(tempfile.gettempdir(), f"late-{os.getppid()}")
    if dist.get_rank() == 0:
        print(f"late: {error_of(dist.all_reduce, torch.ones(4, device=NAME))}")
        open(done, "w").close()
    else:
        while not os.path.exists(done):
            signal.sigtimedwait([], 0.05)
        with contextlib.suppress(FileNotFoundError):
            os.remove(done)
