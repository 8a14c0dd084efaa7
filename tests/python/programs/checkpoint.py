"""A checkpoint of whole tensors: saved by one rank, loaded into a model that is cut otherwise."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_module, distribute_tensor


def cut_along(dim):
    def partition(name, module, mesh):
        if isinstance(module, nn.Linear):
            module.register_parameter("weight", nn.Parameter(distribute_tensor(module.weight, mesh, [Shard(dim)])))
    return partition


def run(model, mesh):
    x = distribute_tensor(torch.randn(4, 8, generator=torch.Generator().manual_seed(1)), mesh)
    return model(x).full_tensor().detach()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    path = os.path.join(folder[0], "model.pt")

    torch.manual_seed(10)
    model = distribute_module(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)), mesh, cut_along(0))
    before = run(model, mesh)
    state = {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in model.state_dict().items()}
    if dist.get_rank() == 0:
        torch.save(state, path)
    dist.barrier()

    torch.manual_seed(11)
    other = distribute_module(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)), mesh, cut_along(1))
    loaded = torch.load(path)
    other.load_state_dict({name: distribute_tensor(loaded[name], mesh, value.placements)
                           for name, value in other.state_dict().items()})
    after = run(other, mesh)
    dist.barrier()
    if dist.get_rank() == 0:
        print("values", f"{before.sum().item():.6f}", torch.allclose(before, after, atol=1e-6))
        print("bytes", sum(value.nbytes for value in loaded.values()))
        os.remove(path)
        os.rmdir(folder[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
