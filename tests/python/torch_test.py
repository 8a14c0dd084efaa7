"""What torch has around tensors: functional transforms, hooks, recomputation, loaders, nn.utils, schedulers, the
profiler, the compiler. Each works on distributed tensors as on plain ones, or refuses by name. Any number of ranks.
"""
import copy
import unittest
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tegula as tg

tg.init(timeout=60)
MESH = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))


def numbers(*shape):
    """A tensor of numbers that all ranks have."""
    return torch.sin(torch.arange(1.0, 1 + torch.Size(shape).numel())).reshape(shape)


def cut(tensor, dim=0):
    return tg.distribute_tensor(tensor, MESH, [tg.Shard(dim)], src_data_rank=None)


def whole(tensor):
    return tg.full_tensor(tensor.detach()) if tg.is_dtensor(tensor) else tensor.detach()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.norm, self.down = nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 4)

    def forward(self, x):
        return self.down(torch.tanh(self.norm(self.up(x))))


PLAN = {"up": "colwise", "down": "rowwise"}


def models():
    """The plain one, and the same distributed."""
    return Model(), tg.parallelize_module(Model(), MESH, PLAN, src_data_rank=None)


class Same(unittest.TestCase):
    def same(self, found, expected, **tolerances):
        found, expected = (list(x) if isinstance(x, (tuple, list)) else [x] for x in (found, expected))
        self.assertEqual(len(found), len(expected))
        for one, other in zip(found, expected):
            torch.testing.assert_close(whole(one), whole(other), **tolerances)

    def same_gradients(self, model, plain):
        for (name, p), q in zip(plain.named_parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(whole(q.grad), p.grad, msg=lambda m, n=name: f"{n}: {m}")


class Functional(Same):
    def both(self, function, *operands, dims=(0, 0, 0)):
        self.same(function(*(cut(x, dim) for x, dim in zip(operands, dims))), function(*operands))

    def test_grad(self):
        def loss(w, x):
            return torch.tanh(x @ w).square().sum()

        self.both(torch.func.grad(loss, argnums=(0, 1)), numbers(6, 4), numbers(5, 6), dims=(1, 0))

    def test_grad_of_grad(self):
        self.both(torch.func.grad(lambda x: torch.func.grad(lambda y: y.sin().sum())(x).sum()), numbers(5))

    def test_vjp_and_jvp(self):
        def function(x):
            return torch.tanh(x) * x.sum()

        def vjp(x, v):
            value, pull = torch.func.vjp(function, x)
            return value, *pull(v)

        self.both(vjp, numbers(5, 2), numbers(5, 2).flip(0))
        self.both(lambda x, v: torch.func.jvp(function, (x,), (v,)), numbers(5, 2), numbers(5, 2).flip(0))

    def test_vmap(self):
        def function(x, w):
            return torch.tanh(w @ x).sum(-1)

        for dims in ((0, 0), (0, 1), (1, 0)):
            self.both(torch.vmap(function, in_dims=(0, None)), numbers(5, 6), numbers(4, 6), dims=dims)

    def test_gradients_of_each_sample(self):
        def loss(w, x):
            return torch.tanh(w @ x).square().sum()

        self.both(torch.vmap(torch.func.grad(loss), in_dims=(None, 0)), numbers(4, 6), numbers(5, 6), dims=(0, 0))

    def test_jacobians(self):
        self.both(torch.func.jacrev(lambda x: torch.tanh(x).cumsum(0)), numbers(5))
        self.both(torch.func.jacfwd(lambda x: torch.tanh(x) * x.sum()), numbers(5))
        self.both(torch.func.hessian(lambda x: (x.sin() * x.sum()).sum()), numbers(4))

    def test_a_module_is_called_with_other_parameters(self):
        plain, model = models()
        results = []
        for one, x in ((model, cut(numbers(5, 6))), (plain, numbers(5, 6))):
            others = {name: 2 * p.detach() for name, p in one.named_parameters()}
            results.append(torch.func.functional_call(one, others, (x,)))
        self.same(*results)

    def test_double_backward(self):
        def function(x):
            slope, = torch.autograd.grad(torch.tanh(x).square().sum(), x, create_graph=True)
            return torch.autograd.grad(slope.square().sum(), x)

        self.same(function(cut(numbers(5, 3)).requires_grad_()), function(numbers(5, 3).requires_grad_()))


class Hooks(Same):
    def test_hooks_of_tensors_see_and_change_gradients(self):
        found = []
        for x in (cut(numbers(5, 3)), numbers(5, 3)):
            leaf, seen = x.clone().requires_grad_(), []
            leaf.register_hook(lambda g: g * 2)
            leaf.register_post_accumulate_grad_hook(lambda p, seen=seen: seen.append(whole(p.grad)))
            middle = leaf.sin()
            middle.register_hook(lambda g, seen=seen: seen.append(whole(g)))
            (middle * x).sum().backward()
            found.append([*seen, leaf.grad])
        self.same(*found)

    def test_hooks_of_modules(self):
        found = []
        for model, x in zip(models(), (numbers(5, 6), cut(numbers(5, 6)))):
            seen = []
            model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
            model.up.register_forward_hook(lambda module, args, out, seen=seen: seen.append(whole(out)))
            model.down.register_full_backward_hook(lambda module, into, out, seen=seen: seen.extend(map(whole, (*into, *out))))
            model(x.clone().requires_grad_()).square().sum().backward()
            found.append(seen)
        self.same(*found)

    def test_saved_tensors_go_through_hooks(self):
        plain, model = models()
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t), t)[1], lambda t: t):
            loss = model(cut(numbers(5, 6))).square().mean()
        loss.backward()
        plain(numbers(5, 6)).square().mean().backward()
        self.same_gradients(model, plain)
        self.assertTrue(packed)

    def test_anomalies_are_found(self):
        x = cut(torch.zeros(4)).requires_grad_()
        with warnings.catch_warnings(), torch.autograd.detect_anomaly(check_nan=True):
            warnings.simplefilter("ignore")
            with self.assertRaisesRegex(RuntimeError, "nan"):
                (torch.sqrt(x) * 0).sum().backward()
        tg.recover()


class Recomputation(Same):
    def test_checkpoints_give_the_same_gradients(self):
        for reentrant in (False, True):
            plain, model = models()
            x = numbers(5, 6)
            plain(x).square().mean().backward()
            checkpoint(model, cut(x).requires_grad_(), use_reentrant=reentrant).square().mean().backward()
            self.same_gradients(model, plain)

    def test_what_was_drawn_is_drawn_again(self):
        gradients = []
        for recomputes in (False, True):
            tg.manual_seed(3)
            x = cut(numbers(50, 4)).requires_grad_()

            def function(x):
                return F.dropout(torch.tanh(x), 0.5)

            y = checkpoint(function, x, use_reentrant=False) if recomputes else function(x)
            y.sum().backward()
            gradients.append(x.grad)
        self.same(*gradients)


class Precision(Same):
    def test_autocast_casts_what_it_casts_of_plain_tensors(self):
        found = []
        for model, x in zip(models(), (numbers(5, 6), cut(numbers(5, 6)))):
            with torch.autocast("cpu", torch.bfloat16):
                y = model(x)
                products = model.up(x)
            self.assertEqual((y.dtype, products.dtype), (torch.bfloat16, torch.bfloat16))
            y.float().square().mean().backward()
            self.assertEqual(model.up.weight.grad.dtype, torch.float32)
            found.append([y.float(), model.up.weight.grad])
        self.same(*found, rtol=0.05, atol=0.02)


class Loaders(Same):
    def test_workers_load_beside_the_ranks(self):
        data = torch.utils.data.TensorDataset(numbers(12, 3), torch.arange(12))
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, shuffle=True,
                                             generator=torch.Generator().manual_seed(1))
        total = 0
        for x, index in loader:  # the same batches on all ranks
            y = tg.shard_batch(x, MESH, "tp")
            self.same(y, numbers(12, 3)[index])
            total += y.sum()
        self.same(total, numbers(12, 3).sum())

    def test_distributed_tensors_are_batched_in_the_rank_itself(self):
        data = torch.utils.data.TensorDataset(cut(numbers(6, 3)))
        found = [batch for batch, in torch.utils.data.DataLoader(data, batch_size=3)]
        self.same(torch.cat(found), numbers(6, 3))

    def test_a_worker_refuses_distributed_tensors(self):
        data = torch.utils.data.TensorDataset(cut(numbers(6, 3)))
        with self.assertRaisesRegex(Exception, "tegula: "):
            list(torch.utils.data.DataLoader(data, batch_size=3, num_workers=1))


class Utilities(Same):
    def trained(self):
        plain, model = models()
        plain(numbers(5, 6)).square().sum().backward()
        model(cut(numbers(5, 6))).square().sum().backward()
        return plain, model

    def test_gradients_are_clipped(self):
        for options in ({"norm_type": 2.0}, {"norm_type": float("inf")}, {"foreach": False}, {"foreach": True}):
            plain, model = self.trained()
            norms = [nn.utils.clip_grad_norm_(one.parameters(), 0.5, **options) for one in (model, plain)]
            self.same(*norms)
            self.same_gradients(model, plain)
        plain, model = self.trained()
        for one in (plain, model):
            nn.utils.clip_grad_value_(one.parameters(), 0.1)
        self.same_gradients(model, plain)

    def test_parameters_as_one_vector(self):
        plain, model = models()
        vectors = [nn.utils.parameters_to_vector(one.parameters()) for one in (model, plain)]
        self.same(*vectors)
        for one, vector in zip((model, plain), vectors):
            nn.utils.vector_to_parameters(2 * vector.detach(), one.parameters())
        self.same(list(model.parameters()), list(plain.parameters()))

    def check_parametrized(self, parametrize, **tolerances):
        found = []
        for model, x in zip(models(), (numbers(5, 6), cut(numbers(5, 6)))):
            torch.manual_seed(4)
            parametrize(model.up)
            y = model(x)
            y.square().sum().backward()
            found.append([y, *(p.grad for _, p in sorted(model.named_parameters()))])
        self.same(*found, **tolerances)

    def test_weights_with_norms(self):
        self.check_parametrized(nn.utils.parametrizations.weight_norm)

    def test_weights_with_old_norms(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.check_parametrized(nn.utils.weight_norm)

    def test_parametrizations_of_ones_own(self):
        class Symmetric(nn.Module):
            def forward(self, x):
                return x + x.flip(0)

        self.check_parametrized(lambda layer: nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric()))

    def test_pruned_weights(self):
        from torch.nn.utils import prune

        self.check_parametrized(lambda layer: prune.l1_unstructured(layer, "weight", amount=7))

    def test_fused_batch_norms(self):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)).eval()
        model = tg.distribute_module(copy.deepcopy(plain), MESH, {"0.*": [tg.Shard(0)]})
        fused = nn.utils.fuse_conv_bn_eval(model[0], model[1])
        x = numbers(2, 2, 5, 5)
        self.same(fused(cut(x)), plain(x))


class Schedulers(Same):
    def test_each_scales_the_steps_of_any_optimizer(self):
        def step_lr(optimizer):
            return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        def one_cycle(optimizer):
            return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=5)

        def cosine(optimizer):
            return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)

        for make in (step_lr, one_cycle, cosine):
            plain, model = models()
            for one, x in ((plain, numbers(5, 6)), (model, cut(numbers(5, 6)))):
                optimizer = torch.optim.SGD(one.parameters(), 0.1, momentum=0.9)
                schedule = make(optimizer)
                for _ in range(4):
                    optimizer.zero_grad()
                    one(x).square().mean().backward()
                    optimizer.step()
                    schedule.step()
            self.same(list(model.parameters()), list(plain.parameters()))

    def test_a_plateau_is_seen_in_a_distributed_loss(self):
        rates = []
        for x in (cut(torch.ones(4)), torch.ones(4)):
            optimizer = torch.optim.SGD([x.clone().requires_grad_()], 1.0)
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            for loss in (3, 2, 2, 2):
                schedule.step((x * loss).mean())
            rates.append(optimizer.param_groups[0]["lr"])
        self.assertEqual(*rates)

    def test_the_state_of_an_optimizer_goes_to_another_one(self):
        plain, model = models()
        for one, x in ((plain, numbers(5, 6)), (model, cut(numbers(5, 6)))):
            first, second = (torch.optim.AdamW(one.parameters(), 0.1) for _ in range(2))
            one(x).square().mean().backward()
            first.step()
            second.load_state_dict(first.state_dict())
            second.step()
        self.same(list(model.parameters()), list(plain.parameters()))


class Joins(Same):
    def test_a_join_passes_over_what_has_no_shape_yet(self):
        x = cut(numbers(2, 6, 3, 4), 1)
        with tg.implicit_replication(), tg.CommLog() as log:
            y = torch.cat([torch.tensor([]), x], dim=-2)  # as caches of keys and values begin
        self.assertEqual((len(log), tg.placements(y)), (0, (tg.Shard(1),)))
        self.same(y, numbers(2, 6, 3, 4))


class States(Same):
    def test_a_plain_state_is_loaded_into_a_distributed_model(self):
        plain, model = models()
        with torch.no_grad():
            for p in plain.parameters():
                p.mul_(3)
        model.load_state_dict(plain.state_dict())
        self.same(list(model.parameters()), list(plain.parameters()))
        self.assertEqual(tg.placements(model.up.weight), (tg.Shard(0),))


class Replicas(Same):
    def test_pytorchs_own_refuse_distributed_parameters(self):
        _, model = models()
        with self.assertRaisesRegex(tg.UsageError, r"(?s)cannot replicate a distributed.*up.weight.*tegula.replicate"):
            nn.parallel.DistributedDataParallel(model)


class Compilers(Same):
    def test_a_compiled_function_runs_as_it_is_with_a_warning(self):
        function = torch.compile(lambda x: torch.tanh(x) * 2 + x.sum(), backend="eager")
        with self.assertWarnsRegex(UserWarning, "tegula: torch.compile .* as it is"):
            self.same(function(cut(numbers(5, 6))), torch.tanh(numbers(5, 6)) * 2 + numbers(5, 6).sum())
        self.same(function(numbers(5, 6)), torch.tanh(numbers(5, 6)) * 2 + numbers(5, 6).sum())

    def test_a_compiled_module_runs_as_it_is(self):
        plain, model = models()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(model, backend="eager")
            compiled(cut(numbers(5, 6))).square().mean().backward()
        plain(numbers(5, 6)).square().mean().backward()
        self.same_gradients(model, plain)

    def test_a_whole_graph_is_refused(self):
        function = torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)
        with self.assertRaisesRegex(Exception, "(?s)cannot be compiled or exported.*hint"):
            function(cut(numbers(4)))

    def test_plain_tensors_are_compiled_as_ever(self):
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        self.same(torch.compile(lambda x: x.sin() + 1, backend=backend)(numbers(4)), numbers(4).sin() + 1)
        self.assertEqual(len(graphs), 1)

    def test_export_is_refused(self):
        _, model = models()
        for program, args in ((model, (numbers(5, 6),)), (nn.Tanh(), (cut(numbers(4)),))):
            with self.assertRaisesRegex(Exception, "(?s)cannot be compiled or exported.*hint"):
                torch.export.export(program, args)


class Profiler(Same):
    def test_our_work_has_our_names(self):
        if tg.size() == 1:
            self.skipTest("one rank sends nothing")
        x = cut(numbers(4 * tg.size(), 6))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            tg.redistribute(x, placements=[tg.Replicate()])
            x.sum().item()
        names = [event.key for event in profile.key_averages()]
        ranks = tg.size()
        self.assertIn(f"tegula::redistribute f32[{4 * ranks}, 6] on (tp={ranks}) as [S(0)] to [R]", names)
        self.assertTrue(any(name.startswith(f"tegula::all_gather(f32[{4 * ranks}, 6], dim 0") for name in names), names)
        self.assertTrue(any(name.startswith("tegula::all_reduce(f32[") for name in names), names)


if __name__ == "__main__":
    unittest.main()
