"""What torch brings for training besides modules and optimizers, on distributed models beside plain ones. Any number of ranks."""
import copy
import unittest

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import tegula as tg

tg.init(timeout=60)
MESH = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))


def numbers(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) / 10


def placed(tensor, placement=None):
    return tg.distribute_tensor(tensor, MESH, [placement or tg.Replicate()])


def plain_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))


def cut(model):
    return tg.parallelize_module(model, MESH, {"0.**": tg.Colwise(), "2": tg.Rowwise()})


X = numbers(3, 4)


class Tools(unittest.TestCase):
    def setUp(self):
        self.plain, self.model = plain_model(), cut(plain_model())

    def check(self, actual, expected, **tolerances):
        torch.testing.assert_close(tg.full_tensor(actual) if tg.is_dtensor(actual) else actual, expected, **tolerances)

    def check_gradients(self):
        for mine, theirs in zip(self.model.parameters(), self.plain.parameters()):
            self.check(mine.grad, theirs.grad)

    def test_autocast(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mine, theirs = self.model(placed(X)), self.plain(X)
        self.assertEqual(mine.dtype, torch.bfloat16)
        self.check(mine.float(), theirs.float(), rtol=0.02, atol=0.01)

    def test_checkpoints_of_activations(self):
        self.plain(X).sum().backward()
        checkpoint(self.model, placed(X), use_reentrant=False).sum().backward()
        self.check_gradients()
        self.model.zero_grad()
        checkpoint(self.model, placed(X).requires_grad_(), use_reentrant=True).sum().backward()
        self.check_gradients()

    def test_transforms_of_functions(self):
        def loss(weight, x):
            return (x @ weight).square().sum()

        weight = numbers(4, 2)
        self.check(torch.func.grad(loss)(placed(weight, tg.Shard(1)), placed(X)), torch.func.grad(loss)(weight, X))
        self.check(torch.func.vmap(lambda t: (t * 2).sum())(placed(X, tg.Shard(0))), (X * 2).sum(dim=1))
        mine = torch.func.jvp(torch.sin, (placed(X, tg.Shard(0)),), (placed(X, tg.Shard(0)),))
        for one, other in zip(mine, torch.func.jvp(torch.sin, (X,), (X,))):
            self.check(one, other)
        self.check(torch.func.functional_call(self.model, dict(self.model.named_parameters()), (placed(X),)), self.plain(X))

    def test_hooks(self):
        seen = []
        self.model[0].register_forward_hook(lambda module, inputs, output: seen.append(tg.is_dtensor(output)))
        for model, x in (self.model, placed(X)), (self.plain, X):
            model[0].weight.register_hook(lambda gradient: gradient * 2)
            model(x).sum().backward()
        self.assertEqual(seen, [True])
        self.check_gradients()

    def test_scaled_losses(self):
        for model, x in (self.model, placed(X)), (self.plain, X):
            scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(model.parameters(), lr=0.1)
            scaler.scale(model(x).sum()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        self.check(self.model[0].weight, self.plain[0].weight)

    def test_clipping(self):
        for foreach in None, False, True:
            for model, x in (self.model, placed(X)), (self.plain, X):
                model.zero_grad()
                model(x).sum().backward()
            self.check(*(nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=foreach)
                         for model in (self.model, self.plain)))
            self.check_gradients()
        self.check(*(nn.utils.parameters_to_vector(model.parameters()) for model in (self.model, self.plain)))

    def test_parametrizations(self):
        for norm in nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm:
            models = plain_model(), plain_model()
            for model in models:
                torch.manual_seed(1)
                norm(model[0])
                model.eval()
            tg.distribute_module(models[0], MESH)
            self.check(models[0](placed(X)), models[1](X))

    def test_schedules_of_learning_rates(self):
        for model, x in (self.model, placed(X)), (self.plain, X):
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)
            for _ in range(3):
                optimizer.zero_grad()
                model(x).square().sum().backward()
                optimizer.step()
                schedule.step()
        self.check(self.model[0].weight, self.plain[0].weight)

    def test_loaders_of_data(self):
        for (batch,) in DataLoader(TensorDataset(numbers(6, 4)), batch_size=2, num_workers=1):
            self.check(placed(batch, tg.Shard(0)) * 2, batch * 2)

    def test_state_dicts_and_averages(self):
        state = copy.deepcopy(self.model.state_dict())
        with torch.no_grad():
            self.model[0].weight.zero_()
        self.model.load_state_dict(state)
        averages = AveragedModel(self.model), AveragedModel(self.plain)
        averages[0].update_parameters(self.model)
        averages[1].update_parameters(self.plain)
        self.check(averages[0](placed(X)), averages[1](X))

if __name__ == "__main__":
    unittest.main()
