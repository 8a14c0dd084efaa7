"""Data and tensor parallel on a mesh of two axes, by placements of whole tensors."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(6)
    w1 = distribute_tensor(torch.randn(12, 8) / 3, mesh, [Replicate(), Shard(0)]).requires_grad_()
    b1 = distribute_tensor(torch.zeros(12), mesh, [Replicate(), Shard(0)]).requires_grad_()
    w2 = distribute_tensor(torch.randn(8, 12) / 3, mesh, [Replicate(), Shard(1)]).requires_grad_()
    for step in range(3):
        samples = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(step))
        x = DTensor.from_local(samples[mesh.get_local_rank("dp")], mesh, [Shard(0), Replicate()])
        y = F.linear(torch.relu(F.linear(x, w1, b1)), w2)
        loss = (y - x).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in (w1, b1, w2):
                p -= 0.1 * p.grad
                p.grad = None
        value = loss.full_tensor().item()
        if dist.get_rank() == 0:
            print("loss", step, tuple(x.shape), f"{value:.6f}")
    sums = [p.full_tensor().sum().item() for p in (w1, b1, w2)]
    if dist.get_rank() == 0:
        print("weights", *(f"{value:.5f}" for value in sums))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
