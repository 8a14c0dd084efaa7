"""PyTorch doing the work of the group "train", under the same case names: same models, same weights, same data.

torch-dtensor splits weights by parallelize_module, in the way that its users are told to: tiles stay plain
tensors between a column-wise and a row-wise layer, and what is whole on every rank is no DTensor at all.
For the batch, every parameter and the data are DTensors; torch-ddp is the usual way, with its settings for
graphs that do not change. torch-fsdp is fully_shard of every layer, and of the model.

Usage: train.py [--only PART OF A CASE'S NAME] [--runs N]
"""
import argparse
import contextlib
import math
import os
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleOutput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)

import ranks as peers

RANKS = 2
RUNS = 5
FIRST_STEPS = 3
TIMED_STEPS = 7
DATA_SEED = 1000
MLP_WIDTH, MLP_BATCH, MLP_LAYERS = 1024, 64, 4
VOCABULARY = 4096


class GptSize(NamedTuple):
    layers: int
    width: int
    heads: int
    tokens: int
    batch: int


def generator(seed):
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def set_weights(module, deviation):
    """As in networks.cpp."""
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

    def layers(self):
        return [getattr(self, f"layer{number}") for number in range(MLP_LAYERS)]

    def forward(self, x):
        x = self.layer0(x)
        for layer in self.layers()[1:]:
            x = layer(torch.relu(x))
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
    def __init__(self, size):
        super().__init__()
        width = size.width
        self.width_of_head = width // size.heads
        self.norm1 = nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.proj = nn.Linear(width, width), nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], -1, self.width_of_head).transpose(1, 2)

    def forward(self, x):
        y = self.norm1(x)
        parts = self.heads(self.query(y)), self.heads(self.key(y)), self.heads(self.value(y))
        if isinstance(parts[0], DTensor):  # has no rule for attention on CPUs
            by_batch = [Shard(0)]
            mixed = local_map(attention, by_batch, (by_batch,) * 3, device_mesh=y.device_mesh)(*parts)
        else:
            mixed = attention(*parts)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.tokens, self.places = nn.Embedding(VOCABULARY, size.width), nn.Embedding(size.tokens, size.width)
        for number in range(size.layers):
            self.add_module(f"block{number}", Block(size))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, VOCABULARY)
        set_weights(self, 0.02)
        self.numbers = torch.arange(size.tokens)
        self.first = lambda x: x  # where the first layer wants its input

    def layers(self):
        return [getattr(self, f"block{number}") for number in range(self.size.layers)]

    def forward(self, words):
        x = self.first(self.tokens(words) + self.places(self.numbers))
        for layer in self.layers():
            x = layer(x)
        return self.head(self.norm(x))

    def data(self):
        shape = (self.size.batch, self.size.tokens)
        return tuple(torch.randint(VOCABULARY, shape, generator=generator(DATA_SEED + i)) for i in (0, 1))

    @staticmethod
    def loss(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())

    def plan(self, **rows):
        plan = {}
        for number in range(self.size.layers):
            for name in ("query", "key", "value", "up"):
                plan[f"block{number}.{name}"] = ColwiseParallel()
            for name in ("proj", "down"):
                plan[f"block{number}.{name}"] = RowwiseParallel(**rows)
        return plan


MODELS = {"mlp": Mlp, "gpt": lambda: Gpt(GptSize(6, 256, 4, 128, 8)), "gpt-wide": lambda: Gpt(GptSize(4, 768, 12, 128, 4))}


def optimizer_of(model):
    """The fused kernel takes plain tensors or DTensors, not both in one call: two lists."""
    lists = [], []
    for parameter in model.parameters():
        lists[isinstance(parameter, DTensor)].append(parameter)
    groups = [{"params": parameters} for parameters in lists if parameters]
    return torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.01, eps=1e-8, fused=True)


class Work(NamedTuple):
    """A model made ready, and what this rank gives to it."""
    model: nn.Module
    data: tuple
    around: object = contextlib.nullcontext
    loss_is_of_my_part: bool = False


def my_part(data, mesh):
    return [part.chunk(mesh.size())[mesh.get_rank()] for part in data]


def split_weights(model, mesh):
    return Work(parallelize_module(model, mesh, model.plan()), model.data())


def split_words(model, mesh):
    plan = {**model.plan(), "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    return Work(parallelize_module(model, mesh, plan), model.data(), loss_parallel)


def split_sequence(model, mesh):
    """What is between the layers is cut by tokens; each norm's output is gathered once for all that read it."""
    norms = [f"block{n}.{name}" for n in range(model.size.layers) for name in ("norm1", "norm2")]
    parallelize_module(model, mesh, {**model.plan(output_layouts=Shard(1)),
                                     **{name: SequenceParallel(use_local_output=False) for name in [*norms, "norm"]}})
    gathered = {"output_layouts": Shard(1), "desired_output_layouts": Replicate()}
    parallelize_module(model, mesh, {name: PrepareModuleOutput(**gathered, use_local_output=False) for name in norms})
    parallelize_module(model, mesh, {"norm": PrepareModuleOutput(**gathered)})

    def cut(x):
        return DTensor.from_local(x, mesh, [Replicate()], run_check=False).redistribute(placements=[Shard(1)]).to_local()

    model.first = cut
    return Work(model, model.data())


def split_batch(model, mesh):
    data = [distribute_tensor(part, mesh, [Shard(0)]) for part in model.data()]
    distribute_module(model, mesh)
    if isinstance(model, Gpt):
        model.numbers = distribute_tensor(model.numbers, mesh, [Replicate()])
    return Work(model, data)


def ddp(model, mesh):
    wrapped = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True,
                                                  broadcast_buffers=False)
    return Work(wrapped, my_part(model.data(), mesh), loss_is_of_my_part=True)


def fsdp(model, mesh):
    data = my_part(model.data(), mesh)
    for layer in model.layers():
        fully_shard(layer, mesh=mesh)
    return Work(fully_shard(model, mesh=mesh), data, loss_is_of_my_part=True)


CASES = [(f"{name} {mode} 2 ranks", who, MODELS[name], split)
         for name in MODELS
         for mode, who, split in (("tp", "torch-dtensor", split_weights), ("tp vocab", "torch-dtensor", split_words),
                                  ("sp", "torch-dtensor", split_sequence), ("dp", "torch-dtensor", split_batch),
                                  ("dp", "torch-ddp", ddp), ("fsdp", "torch-fsdp", fsdp))
         if (name != "mlp" or mode not in ("tp vocab", "sp")) and (name != "gpt-wide" or mode != "tp vocab")]


def measure(case, who, build, split):
    mesh = init_device_mesh("cpu", (RANKS,))
    memory = peers.PeakMemory()
    model = build()
    loss_of = model.loss
    work = split(model, mesh)
    optimizer = optimizer_of(work.model)
    losses = []
    inputs, target = work.data

    def step():
        optimizer.zero_grad()
        with work.around():
            loss = loss_of(work.model(inputs), target)
            loss.backward()
        optimizer.step()
        losses[:] = [loss.detach()]

    for _ in range(FIRST_STEPS):
        step()
    loss = losses[0].full_tensor() if isinstance(losses[0], DTensor) else losses[0].clone()
    if work.loss_is_of_my_part:
        torch.distributed.all_reduce(loss)
        loss /= RANKS
    value = peers.time_of(step, 1, TIMED_STEPS) / 1000
    peers.record("train", case, who, value, "ms")
    peers.record("train", case + " peak memory", who, memory.megabytes(), "MB")
    peers.record("train", case + " third loss", who, loss.item(), "checksum")


def main():
    if "PEER_RANK" in os.environ:
        with peers.joined():
            measure(*CASES[int(sys.argv[1])])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--runs", type=int, default=RUNS)
    chosen = parser.parse_args()
    numbers = [number for number, case in enumerate(CASES) if chosen.only in case[0]]
    runs = [[one for number in numbers for one in peers.measured(__file__, str(number), RANKS)]
            for _ in range(chosen.runs)]
    peers.record_medians(runs)


if __name__ == "__main__":
    main()
