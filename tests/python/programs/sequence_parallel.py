"""Sequence parallel: between the split layers activations are cut along the sequence, norms included."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, PrepareModuleOutput, RowwiseParallel, SequenceParallel, parallelize_module)


class Feed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.feed = nn.LayerNorm(width), Feed(width)

    def forward(self, x):
        return x + self.feed(self.norm(x))


class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.blocks, self.norm = nn.Linear(8, width), nn.Sequential(Block(width), Block(width)), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.blocks(self.first(x)))


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(2)
    model = Model()
    parallelize_module(model, mesh, {
        "first": ColwiseParallel(output_layouts=Shard(1), use_local_output=False),
        "blocks.*.norm": SequenceParallel(),
        "blocks.*.feed": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "blocks.*.feed.up": ColwiseParallel(use_local_output=False),
        "blocks.*.feed.down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        "norm": SequenceParallel(),
        "": PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate(), use_local_output=True),
    })
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(3):
        x = torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(step))
        y = model(x)
        assert not isinstance(y, DTensor)
        loss = (y[..., :8] - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print("loss", step, tuple(y.shape), f"{loss.item():.6f}")
    norm = model.norm.weight.full_tensor()
    gradient = model.norm.weight.grad.full_tensor()
    if dist.get_rank() == 0:
        print("norm", f"{norm.sum().item():.6f} {gradient.abs().sum().item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
