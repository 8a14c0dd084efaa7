"""Loss parallel: the logits stay cut along the vocabulary."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(3)
    body, head = nn.Linear(8, 16), nn.Linear(16, 24)
    parallelize_module(head, mesh, ColwiseParallel(use_local_output=False))
    x, target = torch.randn(10, 8), torch.randint(0, 24, (10,))
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.5, foreach=False)
    for step in range(3):
        logits = head(body(x).tanh())
        assert isinstance(logits, DTensor) and logits.placements[0].is_shard(1)
        with loss_parallel():
            loss = F.cross_entropy(logits, target)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.full_tensor().item()
        if dist.get_rank() == 0:
            print("loss", step, f"{value:.6f}")

    scores = distribute_tensor(torch.randn(6, 24), mesh, [Shard(1)])
    weight = distribute_tensor(torch.rand(24), mesh, [Replicate()])
    labels = torch.tensor([3, 0, 23, -100, 7, 3])
    for reduction in "mean", "sum":
        with loss_parallel():
            loss = F.cross_entropy(scores, labels, weight=weight, reduction=reduction, ignore_index=-100)
        value = loss.full_tensor().item()
        if dist.get_rank() == 0:
            print(reduction, f"{value:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
