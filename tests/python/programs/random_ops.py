"""Random numbers: what can be said of them on any number of ranks."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor


def say(*words):
    if dist.get_rank() == 0:
        print(*words)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    x = distribute_tensor(torch.ones(64, 8), mesh, [Shard(0)])
    dropped = F.dropout(x, 0.5)
    kept = dropped.full_tensor()
    say("dropout", dropped.placements == x.placements, sorted(set(kept.flatten().tolist())), 0.2 < kept.mean().item() / 2 < 0.8)

    x = distribute_tensor(torch.zeros(32, 32), mesh, [Replicate()])
    with torch.no_grad():
        x.uniform_(-1, 1)
    whole = x.full_tensor()
    say("uniform", whole.min().item() >= -1, whole.max().item() <= 1, whole.unique().numel() > 900)
    others = [torch.empty_like(whole) for _ in range(dist.get_world_size())]
    dist.all_gather(others, whole)
    say("replicas", all(torch.equal(other, whole) for other in others))

    torch.manual_seed(7)
    first = F.dropout(distribute_tensor(torch.ones(16), mesh, [Replicate()]), 0.3).full_tensor()
    torch.manual_seed(7)
    second = F.dropout(distribute_tensor(torch.ones(16), mesh, [Replicate()]), 0.3).full_tensor()
    say("seed", torch.equal(first, second))

    layer = distribute_module(nn.Linear(16, 16), mesh)
    with torch.no_grad():
        nn.init.normal_(layer.weight, std=0.02)
        nn.init.zeros_(layer.bias)
    weight = layer.weight.full_tensor()
    say("init", 0.01 < weight.std().item() < 0.03, layer.bias.full_tensor().abs().sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
