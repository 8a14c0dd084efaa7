"""Operators on distributed tensors: products, reductions, views, indices; and what a tensor says of itself."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor, Partial, Placement, Replicate, Shard, distribute_tensor, full, ones, zeros)
from torch.distributed.tensor.debug import CommDebugMode


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))

    def show(name, tensor):
        whole = tensor.full_tensor()
        if dist.get_rank() == 0:
            print(name, tuple(whole.shape), f"{whole.double().sum().item():.4f} {whole.double().abs().max().item():.4f}")

    torch.manual_seed(9)
    a, b = torch.randn(8, 12), torch.randn(12, 4)
    for left in Replicate(), Shard(0), Shard(1):
        for right in Replicate(), Shard(0), Shard(1):
            show(f"mm {left} {right}", distribute_tensor(a, mesh, [left]) @ distribute_tensor(b, mesh, [right]))
    x = distribute_tensor(a, mesh, [Shard(0)])
    for name, function in {
        "sum": lambda t: t.sum(), "mean": lambda t: t.mean(dim=0), "max": lambda t: t.amax(dim=0), "var": lambda t: t.var(dim=1),
        "softmax": lambda t: F.softmax(t, dim=1), "norm": lambda t: F.layer_norm(t, (12,)), "view": lambda t: t.view(8, 3, 4),
        "transpose": lambda t: t.t(), "gelu": F.gelu, "where": lambda t: torch.where(t > 0, t, t * 2),
        "chunk": lambda t: t.chunk(2, dim=1)[0], "argmax": lambda t: t.argmax(dim=1), "sort": lambda t: t.sort(dim=1)[0],
        "cumsum": lambda t: t.cumsum(dim=1), "cat": lambda t: torch.cat([t, t], dim=1), "einsum": lambda t: torch.einsum("ij,kj->ik", t, t),
    }.items():
        show(name, function(x))
    table = distribute_tensor(torch.randn(16, 6), mesh, [Shard(0)])
    show("embedding", F.embedding(distribute_tensor(torch.tensor([[0, 15, 7], [3, 3, 9]]), mesh, [Replicate()]), table))
    show("zeros", zeros(4, 6, device_mesh=mesh, placements=[Shard(1)]))
    show("ones", ones((5, 3), dtype=torch.float64, device_mesh=mesh, placements=[Shard(0)]))
    show("full", full((4, 4), 2.5, device_mesh=mesh, placements=[Replicate()]))
    with CommDebugMode() as mode:
        y = torch.relu(x) * 2
    if dist.get_rank() == 0:
        print("silent", mode.get_total_counts(), y.placements == x.placements)
        print("self", isinstance(x, DTensor), isinstance(a, DTensor), isinstance(x, torch.Tensor), x.dtype, x.ndim, x.numel(),
              x.requires_grad, x.device_mesh == mesh, x._spec.is_sharded(), tuple(x._local_tensor.shape),
              isinstance(x.placements[0], Placement), hasattr(a, "placements"), Partial().is_partial(), Shard(1).dim)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
