"""A model with its layers cut over all ranks has the gradients of the plain one: tegula run -n 4 python dtensor.py"""
import copy

import torch

import tegula as tg

tg.init()
mesh = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))
torch.manual_seed(0)  # the same weights and inputs on all ranks
plain = torch.nn.Sequential(torch.nn.Linear(7, 10), torch.nn.ReLU(), torch.nn.Linear(10, 3))
model = tg.parallelize_module(copy.deepcopy(plain), mesh, {"0": "colwise", "2": "rowwise"})
x = torch.randn(5, 7)
plain(x).square().mean().backward()
model(tg.distribute_tensor(x, mesh)).square().mean().backward()

grad = model[0].weight.grad  # a torch.Tensor
right = torch.allclose(tg.full_tensor(grad), plain[0].weight.grad, atol=1e-6)
if tg.rank() == 0:
    print("gradient", tg.spec(grad), "" if right else "is WRONG")
raise SystemExit(0 if right else 1)
