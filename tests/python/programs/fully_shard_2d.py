"""Fully sharded over one axis of a mesh, tensor parallel over the other; then mixed precision, other dims, another method."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))

    def halved(self, x):
        return self.down(self.up(x)) / 2


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Linear(3, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.last = nn.Linear(width, 2, bias=False)

    def forward(self, x):
        return self.last(self.blocks(self.first(x)))


def step(model, optimizer, number, dp):
    torch.manual_seed(10 * number + dp.get_local_rank())
    x = torch.randn(6, 4, 3)
    optimizer.zero_grad()
    output = model(x)
    assert not isinstance(output, DTensor)
    loss = (output.float() - x[..., :2]).square().mean()
    loss.backward()
    norm = sum(parameter.grad.full_tensor().square().sum() for parameter in model.parameters()).sqrt()
    optimizer.step()
    return loss, norm


def train(title, model, dp):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for number in range(3):
        loss, norm = step(model, optimizer, number, dp)
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=dp.get_group())
        if dist.get_rank() == 0:
            print(title, number, f"{mean.item() / dp.size():.4f}", f"{norm.item():.4f}")
    for name, parameter in sorted(model.named_parameters()):
        whole = parameter.full_tensor().double()
        if dist.get_rank() == 0:
            print(name, tuple(whole.shape), parameter.dtype, f"{whole.sum().item():.3f}")


def main():
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = Model()
    plan = {"norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False)}
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], plan | {"": PrepareModuleInput(
            input_layouts=Replicate(), desired_input_layouts=Shard(1))} if block is model.blocks[0] else plan)
        fully_shard(block, mesh=mesh["dp"])
    parallelize_module(model, mesh["tp"], {"last": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
    fully_shard(model, mesh=mesh["dp"])
    train("both", model, mesh["dp"])

    world = init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
    torch.manual_seed(0)
    model = Model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=world, mp_policy=policy,
                    shard_placement_fn=lambda parameter: Shard(1) if parameter.dim() > 1 else None)
    fully_shard(model, mesh=world, mp_policy=policy)
    output = model(torch.ones(2, 4, 3))
    output.float().sum().backward()
    norm = model.blocks[0].up.weight.grad.full_tensor().norm()
    if dist.get_rank() == 0:
        print("mixed", output.dtype, model.last.weight.dtype, model.last.weight.grad.dtype, f"{norm.item():.1f}")

    first = nn.Linear(8, 8)
    model = fully_shard(nn.Sequential(first, nn.Linear(8, 8)), mesh=world, ignored_params=set(first.parameters()))
    if dist.get_rank() == 0:
        print("ignored", [isinstance(parameter, DTensor) for parameter in model.parameters()])

    torch.manual_seed(0)
    block = fully_shard(Block(8), mesh=world)
    register_fsdp_forward_method(block, "halved")
    block.halved(torch.full((2, 8), 1.0 + dist.get_rank())).sum().backward()
    bias = block.down.bias.grad.full_tensor()
    if dist.get_rank() == 0:
        print("halved", [f"{value:.3f}" for value in bias.tolist()])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
