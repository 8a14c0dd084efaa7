"""distribute_module: a partition function, and functions for inputs and outputs."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.hidden, self.out = nn.Embedding(20, 12), nn.Linear(12, 16), nn.Linear(16, 5)
        self.register_buffer("scale", torch.tensor([0.5, 1.0, 1.5, 2.0, 2.5]))

    def forward(self, words):
        return self.out(torch.relu(self.hidden(self.table(words).mean(dim=1)))) * self.scale


def partition(name, module, mesh):
    if isinstance(module, nn.Linear):
        for key in ("weight", "bias"):
            parameter = nn.Parameter(distribute_tensor(getattr(module, key), mesh, [Shard(0)]))
            module.register_parameter(key, parameter)


def prepare_inputs(module, inputs, mesh):
    return DTensor.from_local(inputs[0], mesh, [Replicate()])


def prepare_outputs(module, output, mesh):
    return output.redistribute(placements=[Replicate()]).to_local()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(8)
    model = distribute_module(Net(), mesh, partition, prepare_inputs, prepare_outputs)
    words = torch.randint(0, 20, (6, 4))
    y = model(words)
    y.square().mean().backward()
    if dist.get_rank() == 0:
        print("plain", isinstance(y, DTensor), tuple(y.shape), f"{y.sum().item():.5f}")
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.full_tensor()
        if dist.get_rank() == 0:
            print(name, [str(p) for p in parameter.placements], tuple(parameter.to_local().shape),
                  f"{gradient.abs().sum().item():.5f}")
    if dist.get_rank() == 0:
        print("buffer", isinstance(model.scale, DTensor), len(model.state_dict()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
