"""A two-dimensional mesh: slices by name, coordinates, process groups, a flattened mesh."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def on_all_ranks(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def say(*words):
    if dist.get_rank() == 0:
        print(*words)


def main():
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp", "tp"))
    assert isinstance(mesh, DeviceMesh)
    say("mesh", mesh.ndim, tuple(mesh.shape), mesh.size(), mesh.size(0), mesh.mesh_dim_names, mesh.mesh.tolist())
    say("coordinates", on_all_ranks(tuple(mesh.get_coordinate())), on_all_ranks(mesh.get_rank()))
    dp, tp = mesh["dp"], mesh["tp"]
    say("slices", dp.ndim, tp.size(), on_all_ranks((dp.get_local_rank(), tp.get_local_rank(), mesh.get_local_rank("tp"))))
    say("same", mesh["dp", "tp"] == mesh, dp == mesh["dp"], dp == tp)

    x = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(x, group=mesh.get_group("dp"))
    say("group", on_all_ranks((x.item(), dist.get_world_size(mesh.get_group("tp")))))

    flat = mesh["dp", "tp"]._flatten("all")
    say("flat", flat.ndim, flat.size(), flat.mesh_dim_names, on_all_ranks(flat.get_local_rank()))

    whole = torch.arange(24.0).reshape(4, 6)
    placed = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    say("both", on_all_ranks(placed.to_local().tolist()))
    rows = distribute_tensor(whole + mesh.get_local_rank("dp"), tp, [Shard(0)])
    say("slice", rows.device_mesh == tp, on_all_ranks(rows.full_tensor().sum().item()))
    mine = DTensor.from_local(torch.full((2, 2), float(dist.get_rank())), flat, [Shard(0)])
    say("locals", tuple(mine.shape), mine.full_tensor().sum().item())
    by_hand = DeviceMesh("cpu", list(range(ranks)), mesh_dim_names=("all",))
    turned = distribute_tensor(torch.arange(4.0), by_hand, [Shard(0)], src_data_rank=0)
    say("by hand", on_all_ranks(turned.to_local().tolist()), by_hand.size())
    replicas = distribute_tensor(torch.tensor([float(dist.get_rank())]), mesh, [Replicate(), Replicate()])
    say("replicas", on_all_ranks(replicas.to_local().item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
