"""PyTorch's DTensor doing the work of the group "ops" over gloo: the same numbers, the same case names.

A case counts when nothing is owed any more: results are whole sums, gradients lie as their leaves do. What
DTensor computes is compared with the plain op on the whole; a case that it refuses, or where it is wrong, has
no figure.
"""
import contextlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel

import ranks as peers

RANKS = 2
ROUNDS = 15
TOLERANCE = 1e-4  # of the greatest element
SEED_OF_GRADIENT = 100
WHO = "torch-dtensor"


class Operand:
    def __init__(self, shape, placement, role="trained", below=0):
        self.shape, self.placement, self.role, self.below = shape, placement, role, below

    def content(self, seed):
        if self.role == "index":
            return torch.randint(self.below, self.shape, generator=torch.Generator().manual_seed(seed))
        return shuffled_numbers(self.shape, seed).requires_grad_()


def shuffled_numbers(shape, seed):
    """As in ops.cpp."""
    count = torch.Size(shape).numel()
    numbers = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return numbers.float().div_(count).mul_(2).sub_(1).view(shape)


def conv2d(image, kernel, bias):
    return [torch.conv2d(image, kernel, bias, padding=1)]


def image_and_kernel(shape, placement):
    return [Operand(shape, placement), Operand((32, 32, 3, 3), Replicate()), Operand((32,), Replicate())]


CHANNELS = Operand((64,), Replicate())
CASES = [
    ("conv2d batch-cut", image_and_kernel((8, 32, 64, 64), Shard(0)), conv2d),
    ("conv2d height-cut", image_and_kernel((2, 32, 128, 128), Shard(2)), conv2d),
    ("batch_norm batch-cut",
     [Operand((32, 64, 32, 32), Shard(0)), CHANNELS, CHANNELS],
     lambda x, weight, bias: [F.batch_norm(x, None, None, weight, bias, training=True)]),
    ("cumsum along the cut", [Operand((4096, 512), Shard(0))], lambda x: [torch.cumsum(x, 0)]),
    ("sort along the cut", [Operand((256, 2048), Shard(1))], lambda x: list(torch.sort(x, 1))),
    ("topk along the cut", [Operand((32, 65536), Shard(1))], lambda x: list(torch.topk(x, 64, 1))),
    ("index_select by owners",
     [Operand((32768, 256), Shard(0)), Operand((4096,), Replicate(), "index", 32768)],
     lambda table, rows: [torch.index_select(table, 0, rows)]),
    ("cross_entropy 32k classes cut",
     [Operand((256, 32768), Shard(1)), Operand((256,), Replicate(), "index", 32768)],
     lambda logits, classes: [F.cross_entropy(logits, classes)]),
]


def placed(tensor, mesh, placements):
    """Every rank has the data: nothing is sent."""
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


class Case:
    def __init__(self, operands, op, mesh):
        self.operands, self.op, self.mesh = operands, op, mesh

    def contents(self):
        whole = [operand.content(seed) for seed, operand in enumerate(self.operands)]
        if self.mesh is None:
            return whole
        return [placed(tensor.detach(), self.mesh, [operand.placement]).requires_grad_(tensor.requires_grad)
                for tensor, operand in zip(whole, self.operands)]

    def forward(self, contents):
        results = self.op(*contents)
        return [result.redistribute(placements=[Replicate()]) if is_owed(result) else result for result in results]

    def gradient(self, result):
        """What comes back to the first result, which is placed as that is."""
        whole = shuffled_numbers(result.shape, SEED_OF_GRADIENT)
        return whole if self.mesh is None else placed(whole, self.mesh, result.placements)

    def both(self, contents, gradient):
        for tensor in contents:
            tensor.grad = None
        results = self.forward(contents)
        results[0].backward(gradient)
        if self.mesh is not None:
            for tensor in contents:
                if tensor.grad is not None and tensor.grad.placements != tensor.placements:
                    tensor.grad = tensor.grad.redistribute(placements=tensor.placements)
        return results

    def outcomes(self):
        """Results, then gradients; raises what DTensor raises."""
        contents = self.contents()
        results = self.forward(contents)
        yield results
        self.both(contents, self.gradient(results[0]))
        yield [tensor.grad for tensor in contents if tensor.requires_grad]


def is_owed(tensor):
    return isinstance(tensor, DTensor) and any(placement.is_partial() for placement in tensor.placements)


def is_close(theirs, plain):
    if theirs.shape != plain.shape or theirs.dtype != plain.dtype:
        return False
    theirs = theirs.detach().full_tensor()
    if not plain.is_floating_point():
        return torch.equal(theirs, plain)
    return (theirs - plain).abs().max() <= TOLERANCE * plain.abs().max()


def worst_of_ranks(failure):
    kinds = [None, "wrong", "refused"]
    number = torch.tensor(kinds.index(failure))
    dist.all_reduce(number, dist.ReduceOp.MAX)
    return kinds[number.item()]


def try_once(operands, op, mesh):
    """What fails of forward and of both, if anything does, and the checksum."""
    failures, checksum = [], 0.0
    theirs = Case(operands, op, mesh).outcomes()
    for plain in Case(operands, op, None).outcomes():
        failure = "refused"
        try:
            found = next(theirs)
            failure = "wrong"  # unless it can be read, and is close
            failure = None if all(map(is_close, found, plain)) else "wrong"
        except (RuntimeError, NotImplementedError):
            pass
        failures.append(worst_of_ranks(failure))
        if failures[-1]:
            break
        checksum += sum(tensor.detach().full_tensor().abs().sum(dtype=torch.float64).item() for tensor in found)
    return (failures * 2)[:2], checksum


def measure(name, operands, op, mesh):
    (of_forward, of_both), checksum = try_once(operands, op, mesh)
    case = Case(operands, op, mesh)
    contents = case.contents()
    if not of_both:
        peers.record("ops", f"{name} checksum {RANKS} ranks", WHO, checksum, "checksum")
        gradient = case.gradient(case.forward(contents)[0])
    with torch.no_grad():
        record(name, of_forward, lambda: case.forward(contents))
    record(f"{name} fwd+bwd", of_both, lambda: case.both(contents, gradient))


def record(name, failure, body):
    value = None if failure else peers.time_of(body, 1, ROUNDS) / 1000
    peers.record("ops", f"{name} {RANKS} ranks", WHO, value, "ms", failure)


def measure_all():
    mesh = init_device_mesh("cpu", (RANKS,))
    for name, operands, op in CASES:
        with loss_parallel() if name.startswith("cross_entropy") else contextlib.nullcontext():
            measure(name, operands, op, mesh)


def main():
    if len(sys.argv) == 1:
        peers.run(__file__, "all", RANKS)
        return
    with peers.joined():
        measure_all()


if __name__ == "__main__":
    main()
