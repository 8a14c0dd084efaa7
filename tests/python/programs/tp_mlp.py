"""Tensor parallel: two linear layers, the first cut by columns, the second by rows; a few steps of training."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.act = nn.GELU()
        self.down = nn.Linear(32, 16)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = parallelize_module(MLP(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    assert all(isinstance(p, DTensor) for p in model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        torch.manual_seed(step)
        x = torch.randn(8, 16)
        loss = (model(x) - x.roll(1, dims=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print("loss", step, f"{loss.item():.6f}")
    up = model.up.weight
    whole = up.full_tensor()
    if dist.get_rank() == 0:
        print("up", tuple(up.shape), tuple(up.to_local().shape), up.placements[0].is_shard(0), f"{whole.sum().item():.5f}")
        print("grad", [p.grad.placements[0].is_replicate() for p in model.parameters()])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
