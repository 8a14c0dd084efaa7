"""local_map: a function on the local tensors, with a collective of its own inside."""
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(4)
    a = distribute_tensor(torch.randn(4, 8), mesh, [Shard(1)]).requires_grad_()
    b = distribute_tensor(torch.randn(8, 6), mesh, [Shard(0)]).requires_grad_()

    def matmul_and_reduce(x, y, group):
        return all_reduce(x @ y, "sum", group)

    product = local_map(matmul_and_reduce, out_placements=[Replicate()], in_placements=([Shard(1)], [Shard(0)], None))
    with torch.no_grad():
        y = product(a, b, mesh.get_group())
        error = (y.full_tensor() - a.full_tensor() @ b.full_tensor()).abs().max().item()

    owed = local_map(torch.mm, out_placements=[Partial()], in_placements=([Shard(1)], [Shard(0)]))
    z = owed(a, b)
    assert z.placements[0].is_partial()
    z.redistribute(placements=[Replicate()]).square().sum().backward()
    gradients = [t.grad.full_tensor() for t in (a, b)]

    halves = local_map(lambda x: (x * 2, x.sum(dim=1)), out_placements=([Shard(0)], [Shard(0)]),
                       in_placements=([Shard(0)],), redistribute_inputs=True)
    double, rows = halves(distribute_tensor(torch.ones(4, 3), mesh, [Replicate()]))
    if dist.get_rank() == 0:
        print("inside", tuple(y.shape), error < 1e-5)
        print("gradients", [f"{g.abs().sum().item():.5f}" for g in gradients])
    totals = double.full_tensor().sum().item(), rows.full_tensor().tolist()
    if dist.get_rank() == 0:
        print("several", *totals)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
