"""PyTorch's DTensor doing the work of the group "dispatch", under the same case names.

torch-plain is the same Python on plain tensors of the tiles' shapes, so that the cost of Python itself
can be told from that of DTensor. Both take turns.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import ranks as peers

SIZE = 8
IMAGES, CHANNELS, CHOSEN = 2, 3, 4
PARAMETERS = 50
COLD_CALLS = {1: 100, 2: 50, 4: 10}  # by axes
ROUNDS = 5
SECONDS = 0.05


def record(case, who, value):
    peers.record("dispatch", case, who, value)


def placed(tile, mesh, placements):
    return DTensor.from_local(tile, mesh, placements, run_check=False)


def operands(ranks, wrap):
    """x, y and zero are cut by rows, weight and bias are whole."""
    rows = SIZE // ranks
    cut, whole = [Shard(0)], [Replicate()]
    return {"x": wrap(torch.rand(rows, SIZE), cut), "y": wrap(torch.rand(rows, SIZE), cut),
            "zero": wrap(torch.zeros(rows, SIZE), cut), "weight": wrap(torch.rand(SIZE, SIZE), whole),
            "bias": wrap(torch.rand(SIZE), whole)}


def operands_by_family(wrap):
    """As small_ops.cpp has them, on one rank."""
    cut, whole = [Shard(0)], [Replicate()]
    return {"x": wrap(torch.rand(SIZE, SIZE), cut), "y": wrap(torch.rand(SIZE, SIZE), cut),
            "few_zeros": wrap(torch.zeros(SIZE, CHOSEN), cut),
            "image": wrap(torch.rand(IMAGES, CHANNELS, SIZE, SIZE), cut),
            "columns": wrap(torch.randint(SIZE, (SIZE, SIZE)), cut), "classes": wrap(torch.randint(SIZE, (SIZE,)), cut),
            "kernel": wrap(torch.rand(CHANNELS, CHANNELS, 3, 3), whole), "channels": wrap(torch.rand(CHANNELS), whole),
            "some": wrap(torch.randint(SIZE, (CHOSEN,)), whole)}


def ops(x, y, zero, weight, bias):
    rows, shape = x.shape[0], (SIZE,)
    return {
        "add": lambda: torch.add(x, y),
        "mul": lambda: torch.mul(x, y),
        "mul scalar": lambda: torch.mul(x, 0.5),
        "mm": lambda: torch.mm(x, weight),
        "addmm": lambda: torch.addmm(bias, x, weight),
        "relu": lambda: torch.relu(x),
        "sum": lambda: torch.sum(x, 1),
        "softmax": lambda: torch.softmax(x, 1),
        "view": lambda: x.view(rows, 2, SIZE // 2),
        "transpose": lambda: torch.transpose(x, 0, 1),
        "detach": lambda: x.detach(),
        "add_": lambda: y.add_(zero),
        "layer_norm": lambda: torch.layer_norm(x, shape, bias, bias),
        "cat": lambda: torch.cat((x, y), 1),
        "copy_": lambda: y.copy_(x),
        "fill_": lambda: y.fill_(0.5),
        "zeros_like": lambda: torch.zeros_like(x),
        "dropout": lambda: torch.native_dropout(x, 0.5, True),
        "mean": lambda: torch.mean(x),
        "mse_loss": lambda: torch.nn.functional.mse_loss(x, y),
    }


def ops_by_family(x, y, few_zeros, image, columns, classes, kernel, channels, some):
    return {
        "conv2d": lambda: torch.conv2d(image, kernel, channels, padding=1),
        "batch_norm eval": lambda: F.batch_norm(image, channels, channels, channels, channels),
        "max_pool2d": lambda: torch.max_pool2d(image, 2),
        "gather": lambda: torch.gather(x, 1, columns),
        "index_select": lambda: torch.index_select(x, 1, some),
        "cumsum": lambda: torch.cumsum(x, 1),
        "sort": lambda: torch.sort(x, 1),
        "topk": lambda: torch.topk(x, CHOSEN, 1),
        "index_add_": lambda: y.index_add_(1, some, few_zeros),
        "scatter_add": lambda: torch.scatter_add(x, 1, columns, y),
        "var": lambda: torch.var(x, 1),
        "argmax": lambda: torch.argmax(x, 1),
        "flip": lambda: torch.flip(x, (1,)),
        "cross_entropy": lambda: F.cross_entropy(x, classes),
    }


def layer(size, wrap):
    x = wrap(torch.rand(size, size), [Replicate()])
    weight = wrap(torch.rand(size, size), [Shard(0)]).requires_grad_()
    bias = wrap(torch.rand(size), [Shard(0)]).requires_grad_()

    def step():
        F.linear(x, weight, bias).relu().sum().backward()
        weight.grad = bias.grad = None

    return step


def updates(wrap):
    def one():
        return wrap(torch.rand(SIZE, SIZE) + 1, [Shard(0)])

    def many():
        return [one() for _ in range(PARAMETERS)]

    def optimizer(**options):
        parameters = [torch.nn.Parameter(one()) for _ in range(PARAMETERS)]
        for parameter in parameters:
            parameter.grad = one()
        return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, **options).step

    ours, others, above, below = many(), many(), many(), many()
    return {
        "adamw step 50 params 8x8": optimizer(foreach=False, fused=False),
        "fused adamw 50 params": optimizer(fused=True),
        "foreach_add_ 50 params": lambda: torch._foreach_add_(ours, others, alpha=1e-6),
        "foreach_addcdiv_ 50 params": lambda: torch._foreach_addcdiv_(ours, above, below, value=1e-6),
    }


def take_turns(case, distributed, plain):
    bodies = {"torch-dtensor": distributed, "torch-plain": plain}
    try:
        distributed()
    except (RuntimeError, NotImplementedError):  # it has no rule
        peers.record("dispatch", case, "torch-dtensor", None, failure="refused")
        del bodies["torch-dtensor"]
    for body in bodies.values():
        for _ in range(3):
            body()
    # All ranks make as many calls as the first one finds good.
    counts = torch.tensor([peers.calls_within(body, SECONDS) for body in bodies.values()])
    dist.broadcast(counts, 0)
    times = {who: [] for who in bodies}
    for _ in range(ROUNDS):
        for (who, body), count in zip(bodies.items(), counts.tolist()):
            times[who].append(peers.time_of(body, count, 1))
    for who, values in times.items():
        record(case, who, statistics.median(values))


def cached(ranks):
    mesh = init_device_mesh("cpu", (ranks,))

    def distributed(tile, placements):
        return placed(tile, mesh, placements)

    def plain(tile, _):
        return tile

    ours, theirs = ops(**operands(ranks, distributed)), ops(**operands(ranks, plain))
    suffix = " cached" + (f" {ranks} ranks" if ranks > 1 else "")
    for name in ours:
        take_turns(name + suffix, ours[name], theirs[name])
    if ranks > 1:
        return
    ours, theirs = ops_by_family(**operands_by_family(distributed)), ops_by_family(**operands_by_family(plain))
    for name in ours:
        take_turns(name + suffix, ours[name], theirs[name])
    for size in (8, 256):
        take_turns(f"linear-relu-sum fwd+bwd {size}x{size}", layer(size, distributed), layer(size, plain))
    ours, theirs = updates(distributed), updates(plain)
    for name in ours:
        take_turns(name, ours[name], theirs[name])


def cold(axes):
    """In an imagined world, as ours."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=2**axes, store=FakeStore())
    mesh = init_device_mesh("cpu", (2,) * axes)
    cut, whole = (Shard(0), Shard(1), Replicate(), Replicate()), (Replicate(),) * 4
    rows, columns = (Shard(0),) + whole[1:], (Replicate(), Shard(1)) + whole[2:]
    for name, op, left, right, inner in (("add", torch.add, cut, cut, None), ("mm", torch.mm, rows, columns, 8)):
        times = []
        for number in range(COLD_CALLS[axes]):
            height, width = 4 * (number % 10 + 1), 4 * (number // 10 + 1)

            def operand(shape, placements):
                tile = torch.rand([size // 2 if Shard(dim) in placements else size for dim, size in enumerate(shape)])
                return placed(tile, mesh, placements)

            a = operand((height, inner or width), left[:axes])
            b = operand((inner or height, width), right[:axes])
            begin = time.perf_counter()
            op(a, b)
            times.append((time.perf_counter() - begin) * 1e6)
        record(f"{name} cold {axes} {'axis' if axes == 1 else 'axes'}", "torch-dtensor", statistics.median(times))


def main():
    if len(sys.argv) == 1:
        peers.run(__file__, "cached", 1)
        peers.run(__file__, "cached", 2)
        for axes in (1, 2, 4):
            peers.run(__file__, f"cold{axes}", 1)
    elif sys.argv[1] == "cached":
        with peers.joined() as (_, ranks):
            cached(ranks)
    else:
        cold(int(sys.argv[1][-1]))


if __name__ == "__main__":
    main()
