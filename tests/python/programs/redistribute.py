"""Every way from one placement to another, for even and uneven sizes, with gradients and in other dtypes."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


def say(*words):
    if dist.get_rank() == 0:
        print(*words)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for shape in (8, 4), (5, 3), (1, 7):
        whole = torch.arange(1.0, 1 + shape[0] * shape[1]).reshape(shape)
        for before in Replicate(), Shard(0), Shard(1):
            x = distribute_tensor(whole, mesh, [before])
            for after in Replicate(), Shard(0), Shard(1):
                y = x.redistribute(mesh, [after])
                assert torch.equal(y.full_tensor(), whole)
                say(shape, str(before), str(after), y.placements == (after,), y.to_local().sum().item())

    parts = DTensor.from_local(torch.full((4, 8), dist.get_rank() + 1.0), mesh, [Partial()])
    say("owed", parts.placements[0].is_partial(), parts.redistribute(placements=[Replicate()]).to_local()[0, 0].item())
    scattered = parts.redistribute(placements=[Shard(1)], async_op=True)
    say("scattered", tuple(scattered.to_local().shape), scattered.to_local()[0, 0].item())
    for op in "max", "min", "avg":
        say(op, DTensor.from_local(torch.tensor([dist.get_rank() + 1.0]), mesh, [Partial(op)]).full_tensor().item())

    x = distribute_tensor(torch.arange(12.0).reshape(4, 3), mesh, [Shard(0)]).requires_grad_()
    y = (x * 2).redistribute(placements=[Replicate()])
    (y.to_local() * torch.arange(12.0).reshape(4, 3)).sum().backward()
    say("gradient", x.grad.placements == x.placements, x.grad.full_tensor().tolist())

    plain = torch.ones(4, requires_grad=True)
    z = DTensor.from_local(plain, mesh, [Shard(0)]).redistribute(placements=[Replicate()])
    (z.to_local() * torch.arange(float(z.numel()))).sum().backward()
    say("local gradient", tuple(z.shape), plain.grad.tolist())

    x = distribute_tensor(torch.linspace(0, 1, 8), mesh, [Shard(0)]).requires_grad_()
    half = x.redistribute(placements=[Replicate()], forward_dtype=torch.bfloat16)
    half.to_local().float().sum().backward()
    say("dtypes", half.dtype, x.grad.dtype, f"{half.to_local().float().sum().item():.4f}", x.grad.full_tensor().tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
