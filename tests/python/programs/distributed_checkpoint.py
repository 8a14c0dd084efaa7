"""torch.distributed.checkpoint: saved from one placement, loaded into others; model and optimizer."""
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor


def cut_along(dim):
    def partition(name, module, mesh):
        for key, parameter in list(module.named_parameters(recurse=False)):
            placement = Shard(dim) if dim < parameter.ndim else Replicate()
            module.register_parameter(key, nn.Parameter(distribute_tensor(parameter.data, mesh, [placement])))
    return partition


def build(mesh, seed, dim):
    torch.manual_seed(seed)
    model = distribute_module(nn.Sequential(nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 5)), mesh, cut_along(dim))
    return model, torch.optim.AdamW(model.parameters(), lr=0.05, foreach=False)


def step(model, optimizer, mesh, seed):
    x = distribute_tensor(torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)), mesh, [Replicate()])
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.full_tensor().item()


def state_of(model, optimizer):
    moments = {f"{k}.{name}": optimizer.state[p][name] for k, p in enumerate(model.parameters()) for name in ("exp_avg", "exp_avg_sq")}
    return {"model": model.state_dict(), "moments": moments, "note": "after two steps"}


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)

    model, optimizer = build(mesh, 20, 0)
    losses = [step(model, optimizer, mesh, k) for k in range(2)]
    dcp.save(state_of(model, optimizer), checkpoint_id=folder[0])
    losses.append(step(model, optimizer, mesh, 2))

    other, others = build(mesh, 21, 1)
    step(other, others, mesh, 9)
    state = state_of(other, others)
    state["note"] = ""
    dcp.load(state, checkpoint_id=folder[0])
    other.load_state_dict(state["model"])
    for k, p in enumerate(other.parameters()):
        others.state[p]["step"].fill_(2)
        for name in ("exp_avg", "exp_avg_sq"):
            others.state[p][name].copy_(state["moments"][f"{k}.{name}"])
    again = step(other, others, mesh, 2)
    after = step(model, optimizer, mesh, 3), step(other, others, mesh, 3)
    if dist.get_rank() == 0:
        print("losses", *(f"{loss:.6f}" for loss in losses))
        print("again", f"{again:.6f}", state["note"])
        print("after", *(f"{loss:.6f}" for loss in after))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
