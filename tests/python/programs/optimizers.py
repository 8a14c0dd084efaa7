"""Optimizers, schedulers and clipping on parameters that are cut."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor


def cut(name, module, mesh):
    for key, parameter in list(module.named_parameters(recurse=False)):
        module.register_parameter(key, nn.Parameter(distribute_tensor(parameter.data, mesh, [Shard(0)])))


def train(mesh, make):
    torch.manual_seed(5)
    model = distribute_module(nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 4)), mesh, cut)
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    losses = []
    for step in range(3):
        x = distribute_tensor(torch.randn(8, 6, generator=torch.Generator().manual_seed(step)), mesh, [Replicate()])
        loss = model(x).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=False)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        losses.append(f"{loss.full_tensor().item():.6f} {norm.item():.6f}")
    return losses


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    for name, make in {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=False),
        "adam": lambda p: torch.optim.Adam(p, lr=0.02, foreach=False),
        "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=0.02, foreach=True),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, foreach=False),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, foreach=False),
    }.items():
        losses = train(mesh, make)
        if dist.get_rank() == 0:
            print(name, *losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
