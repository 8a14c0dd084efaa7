"""Fully sharded: each block by itself, then the rest; each rank has samples of its own; accumulation and clipping."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.table = nn.Embedding(13, width)
        self.blocks = nn.ModuleList([Block(width), Block(width)])
        self.head = nn.Linear(width, 13, bias=False)

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(mesh, reshard_after_forward):
    torch.manual_seed(0)
    model = Model()
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard_after_forward)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard_after_forward)
    assert isinstance(model, FSDPModule) and all(isinstance(p, DTensor) for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(4):
        optimizer.zero_grad()
        for part in range(2):
            model.set_requires_gradient_sync(part == 1)
            torch.manual_seed(100 * step + 10 * part + dist.get_rank())
            tokens = torch.randint(13, (4, 5))
            logits = model(tokens)
            assert not isinstance(logits, DTensor) and logits.shape == (4, 5, 13)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.roll(1, 1).flatten())
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print("step", step, f"{mean.item() / dist.get_world_size():.5f}", f"{norm.item():.5f}")
    up = model.blocks[0].up.weight
    whole = up.full_tensor()
    if dist.get_rank() == 0:
        print("up", tuple(up.shape), tuple(up.to_local().shape), f"{whole.double().sum().item():.4f}")
        print("grad", up.grad.placements[-1].is_shard(0), up.grad.dtype)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    train(mesh, True)
    train(mesh, False)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
