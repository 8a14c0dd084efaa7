"""PyTorch doing the work of the group "train", under the same case names: same models, same weights, same data.

torch-dtensor splits weights by parallelize_module, in the way that its users are told to: tiles stay plain
tensors between a column-wise and a row-wise layer, and what is whole on every rank is no DTensor at all.
For the batch, every parameter and the data are DTensors; torch-ddp is the usual way.
"""
import contextlib
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module

import ranks as peers

RANKS = 2
FIRST_STEPS = 3
TIMED_STEPS = 7
DATA_SEED = 1000
MLP_WIDTH, MLP_BATCH, MLP_LAYERS = 1024, 64, 4
WIDTH, HEADS, TOKENS, BATCH, VOCABULARY, LAYERS = 256, 4, 128, 8, 4096, 6


def generator(seed):
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def set_weights(module, deviation):
    """As in trainer.cpp."""
    for seed, (name, parameter) in enumerate(module.named_parameters()):
        if parameter.dim() == 2:
            parameter.copy_(torch.randn(parameter.shape, generator=generator(seed)) * deviation)
        elif name.endswith("bias"):
            parameter.zero_()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        for number in range(MLP_LAYERS):
            self.add_module(f"layer{number}", nn.Linear(MLP_WIDTH, MLP_WIDTH))
        set_weights(self, math.sqrt(2 / MLP_WIDTH))

    def forward(self, x):
        x = self.layer0(x)
        for number in range(1, MLP_LAYERS):
            x = getattr(self, f"layer{number}")(torch.relu(x))
        return x

    @staticmethod
    def data():
        shape = (MLP_BATCH, MLP_WIDTH)
        return (torch.randn(shape, generator=generator(DATA_SEED)),
                torch.randn(shape, generator=generator(DATA_SEED + 1)))

    loss = staticmethod(F.mse_loss)

    @staticmethod
    def plan():
        return {f"layer{n}": RowwiseParallel() if n % 2 else ColwiseParallel() for n in range(MLP_LAYERS)}


def attention(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], -1, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x):
        y = self.norm1(x)
        parts = self.heads(self.query(y)), self.heads(self.key(y)), self.heads(self.value(y))
        if isinstance(y, DTensor):  # has no rule for attention on CPUs
            by_batch = [Shard(0)]
            mixed = local_map(attention, by_batch, (by_batch,) * 3, device_mesh=y.device_mesh)(*parts)
        else:
            mixed = attention(*parts)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        for number in range(LAYERS):
            self.add_module(f"block{number}", Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
        set_weights(self, 0.02)
        self.numbers = torch.arange(TOKENS)

    def forward(self, words):
        x = self.tokens(words) + self.places(self.numbers)
        for number in range(LAYERS):
            x = getattr(self, f"block{number}")(x)
        return self.head(self.norm(x))

    @staticmethod
    def data():
        return tuple(torch.randint(VOCABULARY, (BATCH, TOKENS), generator=generator(DATA_SEED + i)) for i in (0, 1))

    @staticmethod
    def loss(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())

    @staticmethod
    def plan():
        plan = {}
        for number in range(LAYERS):
            for name in ("query", "key", "value", "up"):
                plan[f"block{number}.{name}"] = ColwiseParallel()
            for name in ("proj", "down"):
                plan[f"block{number}.{name}"] = RowwiseParallel()
        return plan


def optimizer_of(model):
    """The fused kernel takes plain tensors or DTensors, not both in one call: two lists."""
    lists = [], []
    for parameter in model.parameters():
        lists[isinstance(parameter, DTensor)].append(parameter)
    groups = [{"params": parameters} for parameters in lists if parameters]
    return torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.01, eps=1e-8, fused=True)


def measure(case, who, model, loss_of, data, around=contextlib.nullcontext):
    optimizer = optimizer_of(model)
    losses = []
    inputs, target = data

    def step():
        optimizer.zero_grad()
        with around():
            loss = loss_of(model(inputs), target)
            loss.backward()
        optimizer.step()
        losses[:] = [loss.detach()]

    for _ in range(FIRST_STEPS):
        step()
    loss = losses[0].full_tensor() if isinstance(losses[0], DTensor) else losses[0].clone()
    if who == "torch-ddp":  # each rank knows its own half's
        torch.distributed.all_reduce(loss)
        loss /= RANKS
    value = peers.time_of(step, 1, TIMED_STEPS) / 1000
    peers.record("train", case, who, value, "ms")
    peers.record("train", case + " third loss", who, loss.item(), "loss")


def split_weights(kind, mesh):
    model = kind()
    return parallelize_module(model, mesh, kind.plan())


def split_words(mesh):
    plan = {**Gpt.plan(), "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    return parallelize_module(Gpt(), mesh, plan)


def split_batch(kind, mesh):
    model = distribute_module(kind(), mesh)
    if kind is Gpt:
        model.numbers = distribute_tensor(model.numbers, mesh, [Replicate()])
    return model, [distribute_tensor(part, mesh, [Shard(0)]) for part in kind.data()]


def measure_all(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    for name, kind in (("mlp", Mlp), ("gpt", Gpt)):
        measure(f"{name} tp 2 ranks", "torch-dtensor", split_weights(kind, mesh), kind.loss, kind.data())
        model, data = split_batch(kind, mesh)
        measure(f"{name} dp 2 ranks", "torch-dtensor", model, kind.loss, data)
        mine = [part.chunk(ranks)[rank] for part in kind.data()]
        measure(f"{name} dp 2 ranks", "torch-ddp", nn.parallel.DistributedDataParallel(kind()), kind.loss, mine)
    measure("gpt tp vocab 2 ranks", "torch-dtensor", split_words(mesh), Gpt.loss, Gpt.data(), loss_parallel)


def main():
    if len(sys.argv) == 1:
        peers.run(__file__, "all", RANKS)
        return
    with peers.joined() as (rank, ranks):
        measure_all(rank, ranks)


if __name__ == "__main__":
    main()
