"""The Python face: what a program does first. Run by any number of ranks: tegula run -n 2 python basics_test.py"""
import copy
import unittest
import warnings

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import tegula as tg

tg.init(timeout=60)
MESH = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))


def same_everywhere(*shape):
    """A tensor of numbers that all ranks have."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.up = nn.Linear(6, 7)
        self.norm = nn.LayerNorm(7)
        self.down = nn.Linear(7, 6)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.embed.weight  # tied
        self.register_buffer("scale", torch.full((6,), 0.5))

    def forward(self, words):
        x = self.embed(words) * self.scale
        return self.out(x + self.down(torch.relu(self.norm(self.up(x)))))


class Words(unittest.TestCase):
    def test_a_mesh_knows_its_axes_and_this_rank(self):
        self.assertEqual(MESH.axes, (("tp", tg.size()),))
        self.assertEqual((MESH.names, MESH.shape, MESH.ndim, MESH.size()), (("tp",), (tg.size(),), 1, tg.size()))
        self.assertEqual(MESH.coordinate, (tg.rank(),))
        self.assertEqual(MESH["tp"], MESH)
        self.assertEqual(repr(MESH), f"(tp={tg.size()})")

    def test_axes_of_two_have_names(self):
        mesh = tg.init_device_mesh("cpu", (1, tg.size()), mesh_dim_names=("dp", "tp"))
        self.assertEqual(repr(mesh["tp"]), f"(tp={tg.size()}) of (dp=1, tp={tg.size()})")
        self.assertEqual(mesh["tp", "dp"].shape, (tg.size(), 1))
        with self.assertRaisesRegex(tg.UsageError, "pp"):
            mesh["pp"]

    def test_names_and_sizes_of_a_mesh_must_fit(self):
        with self.assertRaisesRegex(tg.UsageError, "1 sizes of axes, but 2 names"):
            tg.init_device_mesh("cpu", (1,), mesh_dim_names=("dp", "tp"))

    def test_placements_print_and_compare(self):
        self.assertEqual(repr([tg.Replicate(), tg.Shard(1), tg.Partial()]), "[R, S(1), P(sum)]")
        self.assertEqual(repr(tg.Shard(0, sizes=[3, 1])), "S(0, sizes=[3, 1])")
        self.assertEqual(tg.Shard(0), tg.Shard(0))
        self.assertNotEqual(tg.Shard(0), tg.Shard(1))
        self.assertNotEqual(tg.Shard(0), tg.Replicate())
        self.assertEqual(len({tg.Partial("max"), tg.Partial("max"), tg.Partial("min")}), 2)
        self.assertEqual((tg.Shard(2).dim, tg.Partial("avg").reduce_op), (2, "avg"))

    def test_an_unknown_reduction_is_named(self):
        with self.assertRaisesRegex(tg.UsageError, "median"):
            tg.Partial("median")

    def test_errors_are_runtime_errors(self):
        self.assertTrue(issubclass(tg.UsageError, tg.Error) and issubclass(tg.Error, RuntimeError))


class Tensors(unittest.TestCase):
    def check(self, actual, expected):
        torch.testing.assert_close(tg.full_tensor(actual), expected)

    def test_a_distributed_tensor_is_a_tensor_of_the_whole_shape(self):
        x = same_everywhere(5, 3)
        d = tg.distribute_tensor(x, MESH, [tg.Shard(0)])
        self.assertIs(type(d), torch.Tensor)
        self.assertTrue(tg.is_dtensor(d) and not tg.is_dtensor(x))
        self.assertEqual(d.shape, x.shape)
        self.assertEqual(tg.placements(d), (tg.Shard(0),))
        self.assertEqual(tg.mesh(d), MESH)
        self.assertEqual(tg.spec(d), f"f32[5, 3] on (tp={tg.size()}) as [S(0)]")
        self.check(d, x)

    def test_the_first_rank_of_the_mesh_has_the_data(self):
        d = tg.distribute_tensor(torch.full((4,), float(tg.rank())), MESH, [tg.Shard(0)])
        self.check(d, torch.zeros(4))
        last = tg.size() - 1
        d = tg.distribute_tensor(torch.full((4,), float(tg.rank())), MESH, src_data_rank=last)
        self.check(d, torch.full((4,), float(last)))

    def test_each_fiber_of_a_slice_has_data_of_its_own(self):
        fibers = tg.init_device_mesh("cpu", (tg.size(), 1), mesh_dim_names=("dp", "tp"))["tp"]
        mine = torch.full((4,), float(tg.rank()))
        self.check(tg.distribute_tensor(mine, fibers, [tg.Shard(0)]), mine)

    def test_tiles_form_a_tensor(self):
        d = tg.from_local(torch.full((tg.rank() + 1, 2), float(tg.rank())), MESH, [tg.Shard(0)])
        expected = torch.cat([torch.full((r + 1, 2), float(r)) for r in range(tg.size())])
        self.check(d, expected)
        self.assertEqual(tg.to_local(d).shape, (tg.rank() + 1, 2))

    def test_parts_add_up(self):
        d = tg.from_local(torch.ones(3), MESH, [tg.Partial("sum")])
        self.check(d, torch.full((3,), float(tg.size())))
        self.assertEqual(d.sum().item(), 3.0 * tg.size())

    def test_redistribute_keeps_the_values(self):
        x = same_everywhere(5, 3)
        d = tg.distribute_tensor(x, MESH, [tg.Shard(0)])
        for placement in (tg.Replicate(), tg.Shard(1), tg.Partial("sum")):
            for async_op in (False, True):
                moved = tg.redistribute(d, placements=[placement], async_op=async_op)
                self.assertEqual(tg.placements(moved), (placement,))
                self.check(moved, x)

    def test_factories_make_tiles(self):
        shape, cut = (5, 3), [tg.Shard(0)]
        self.check(tg.zeros(shape, MESH, cut), torch.zeros(shape))
        self.check(tg.ones(shape, MESH, cut, dtype=torch.int32), torch.ones(shape, dtype=torch.int32))
        self.check(tg.full(shape, 2.5, MESH, cut), torch.full(shape, 2.5))
        self.check(tg.arange(0, 10, 3, MESH, cut), torch.arange(0, 10, 3))
        self.check(tg.full(shape, 1j, MESH, cut, dtype=torch.complex64), torch.full(shape, 1j))
        self.check(tg.full(shape, True, MESH, cut, dtype=torch.bool), torch.full(shape, True))
        self.check(tg.eye(4, 3, MESH, cut), torch.eye(4, 3))
        self.assertEqual(tg.empty(shape, MESH, cut, requires_grad=True).requires_grad, True)
        self.assertEqual(tg.randint(2, 4, shape, MESH, cut).dtype, torch.int64)

    def test_random_numbers_do_not_depend_on_the_placement(self):
        wholes = []
        for placement in (tg.Shard(0), tg.Shard(1), tg.Replicate()):
            tg.manual_seed(3)
            wholes.append(tg.full_tensor(tg.randn((5, 3), MESH, [placement])))
        torch.testing.assert_close(wholes[1:], [wholes[0]] * 2, rtol=0, atol=0)

    def test_the_state_of_the_generator_comes_back(self):
        state = tg.rng_state()
        first = tg.full_tensor(tg.rand((5,), MESH, [tg.Shard(0)]))
        self.assertNotEqual(tg.rng_state(), state)
        tg.set_rng_state(state)
        self.check(tg.rand((5,), MESH, [tg.Replicate()]), first)

    def test_printing_shows_values_and_spec(self):
        text = tg.to_string(tg.arange(0, 4, 1, MESH, [tg.Shard(0)]))
        self.assertIn("3", text)
        self.assertIn(f"on (tp={tg.size()}) as [S(0)]", text)

    def test_large_plain_tensors_need_a_guard(self):
        d, x = tg.ones((2000,), MESH, [tg.Shard(0)]), torch.arange(2000.0)
        with self.assertRaisesRegex(RuntimeError, "tegula: "):
            d + x
        with tg.implicit_replication(), tg.implicit_replication():
            self.check(d + x, 1 + x)
        with self.assertRaises(RuntimeError):
            d + x

    def test_leaving_a_context_that_was_not_entered_is_an_error(self):
        for context in tg.implicit_replication(), tg.strict_mode(), tg.gradient_policy("now"):
            with self.assertRaisesRegex(tg.UsageError, "left that was not entered"):
                context.__exit__(None, None, None)
            with context:
                pass
            with self.assertRaises(tg.UsageError):
                context.__exit__(None, None, None)

    def test_asking_a_plain_tensor_for_its_spec_is_refused(self):
        with self.assertRaises(tg.UsageError):
            tg.spec(torch.ones(2))

    def test_a_refused_operator_throws_our_error(self):
        with self.assertRaises(tg.UsageError):
            tg.ones((2000,), MESH, [tg.Shard(0)]) + torch.arange(2000.0)

    def test_small_plain_tensors_count_as_replicated_and_are_compared(self):
        d = tg.ones((4,), MESH, [tg.Shard(0)])
        self.check(d + torch.arange(4.0), 1 + torch.arange(4.0))
        with self.assertRaisesRegex(tg.CommError, "a plain operand of aten::add.Tensor"):
            tg.full_tensor(d + torch.full((4,), float(tg.rank())))
        tg.recover()
        self.check(d + torch.arange(4.0), 1 + torch.arange(4.0))

    def test_an_error_of_one_rank_reaches_all_and_they_recover(self):
        d = tg.distribute_tensor(torch.tensor([1] * 5 + [0]), MESH, [tg.Shard(0)])
        with self.assertRaisesRegex(RuntimeError, "aten::remainder.*ZeroDivisionError|ZeroDivisionError.*aten::remainder"):
            tg.full_tensor(d % d)
        tg.recover()
        self.check(d + d, torch.tensor([2] * 5 + [0]))

    def test_a_norm_whose_gradient_has_no_kernel_here_is_composed(self):
        x, w = same_everywhere(4, 6), same_everywhere(6)
        placed = [tg.distribute_tensor(t, MESH, p).requires_grad_() for t, p in ((x, [tg.Shard(0)]), (w, [tg.Replicate()]))]
        plain = [t.clone().requires_grad_() for t in (x, w)]
        torch.nn.functional.rms_norm(placed[0], (6,), placed[1]).sum().backward()
        torch.nn.functional.rms_norm(plain[0], (6,), plain[1]).sum().backward()
        for mine, theirs in zip(placed, plain):
            torch.testing.assert_close(tg.full_tensor(mine.grad), theirs.grad)


    def test_a_batch_is_cut_by_rows_and_nothing_is_sent(self):
        x = same_everywhere(5, 3)
        with tg.CommLog() as log:
            d = tg.shard_batch(x, MESH)
        self.assertEqual(len(log), 0)
        self.assertEqual(tg.placements(d), (tg.Shard(0),))
        self.check(d, x)
        mesh = tg.init_device_mesh("cpu", (1, tg.size()), mesh_dim_names=("a", "b"))
        self.assertEqual(tg.placements(tg.shard_batch(x, mesh, "b")), (tg.Replicate(), tg.Shard(0)))
        with self.assertRaisesRegex(tg.UsageError, "does not know which axis"):
            tg.shard_batch(x, mesh)

    def test_a_function_of_tiles_makes_a_tensor(self):
        x = same_everywhere(5, 3).requires_grad_()
        d = tg.distribute_tensor(x, MESH, [tg.Shard(1)])
        doubled = tg.local_map(lambda tile, factor: tile * factor, [d, 2], [[tg.Shard(0)]], in_placements=[[tg.Shard(0)]])
        self.assertEqual(tg.placements(doubled), (tg.Shard(0),))
        self.check(doubled.detach(), 2 * x.detach())
        doubled.sum().backward()
        self.check(d.grad, torch.full((5, 3), 2.0))
        pair = tg.local_map(lambda tile: (tile, -tile), [d.detach()], [[tg.Shard(1)]] * 2)
        self.check(pair[0] + pair[1], torch.zeros(5, 3))
        with self.assertRaisesRegex(tg.UsageError, "placements for each result"):
            tg.local_map(lambda tile: (tile, tile), [d.detach()], [[tg.Shard(1)]])
        with self.assertRaisesRegex(tg.UsageError, "needs a DTensor among its inputs"):
            tg.local_map(lambda tile: tile, [x], [[tg.Shard(1)]])

    def test_a_log_lists_what_is_sent(self):
        part = tg.from_local(torch.ones(6), MESH, [tg.Partial()])
        with tg.CommLog() as log:
            tg.redistribute(part, placements=[tg.Replicate()])
            self.assertEqual(len(log), 1 if tg.size() > 1 else 0)
        tg.redistribute(part, placements=[tg.Replicate()])
        self.assertEqual(len(log.entries()), len(log))
        for entry in log.entries():
            self.assertEqual((entry.axis, entry.ranks, entry.bytes), ("tp", tg.size(), 24))
            self.assertEqual((entry.reduction, entry.op), ("sum", "redistribute"))
            self.assertGreaterEqual(entry.seconds, 0)
            self.assertEqual(str(log), f"{entry!r}\n")
            self.assertIn("24 bytes, for redistribute", str(log))

    def test_strict_mode_refuses_what_moves_unasked(self):
        d = tg.distribute_tensor(same_everywhere(5, 3), MESH, [tg.Shard(0)])
        with tg.strict_mode():
            d + d
            with self.assertRaisesRegex(tg.UsageError, "flip"):
                d.flip(0)
        self.check(d.flip(0), same_everywhere(5, 3).flip(0))


class Limits(unittest.TestCase):
    def test_tensors_without_data_are_not_made_of_it(self):
        x = tg.distribute_tensor(same_everywhere(5, 3), MESH, [tg.Shard(0)])
        with self.assertRaisesRegex(Exception, "(?s)cannot be compiled or exported.*hint"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FakeTensorMode().from_tensor(x)


class Gradients(unittest.TestCase):
    def test_gradients_are_those_of_the_plain_program(self):
        w, x = same_everywhere(7, 5).requires_grad_(), same_everywhere(4, 5)
        nn.functional.linear(x, w).relu().square().sum().backward()
        for placement in (tg.Shard(0), tg.Shard(1), tg.Replicate()):
            dw = tg.distribute_tensor(w.detach(), MESH, [placement]).requires_grad_()
            dx = tg.distribute_tensor(x, MESH, [tg.Shard(0)])
            nn.functional.linear(dx, dw).relu().square().sum().backward()
            self.assertEqual(tg.placements(dw.grad), (placement,))
            torch.testing.assert_close(tg.full_tensor(dw.grad), w.grad)

    def test_gradients_pass_through_local_code(self):
        x = same_everywhere(5, 3).requires_grad_()
        d = tg.distribute_tensor(x, MESH, [tg.Shard(0)])
        self.assertTrue(d.is_leaf and d.requires_grad)
        doubled = tg.from_local(2 * tg.to_local(d), MESH, [tg.Shard(0)], shape=d.shape, stride=d.stride())
        tg.full_tensor(doubled).square().sum().backward()
        torch.testing.assert_close(tg.full_tensor(d.grad), 8 * x.detach())


    def test_gradients_that_are_held_add_up_and_are_paid_once(self):
        batches = [same_everywhere(4, 5).double(), same_everywhere(4, 5).double() + 1]
        w = same_everywhere(7, 5).double().requires_grad_()
        for x in batches:
            nn.functional.linear(x, w).square().sum().backward()

        def held(module, policy):
            tg.set_gradient_policy(module, policy)
            for x in batches:
                dx = tg.distribute_tensor(x, MESH, [tg.Shard(0)])
                nn.functional.linear(dx, module.weight).square().sum().backward()
            return module.weight.grad

        def model():
            module = nn.Linear(5, 7, bias=False).double()
            module.weight.data.copy_(w.detach())
            return tg.distribute_module(module, MESH)

        first = model()
        self.assertEqual(repr(tg.placements(held(first, "hold"))[0]), "P(sum)")
        with tg.CommLog() as log:
            tg.reduce_gradients(first.parameters())
        self.assertEqual(len(log), 1 if tg.size() > 1 else 0)
        torch.testing.assert_close(tg.full_tensor(first.weight.grad), w.grad)
        for policy in ("now", "async", "hold over tp, else now"):
            with tg.gradient_policy("now"):
                gradient = held(model(), policy)
            self.assertEqual(tg.placements(gradient), (tg.Replicate(),))
            torch.testing.assert_close(tg.full_tensor(gradient), w.grad)
        with self.assertRaisesRegex(tg.UsageError, "later"):
            tg.set_gradient_policy(first, "later")
        with self.assertRaises(tg.UsageError):
            tg.set_gradient_policy(first.weight, "hold over nobody")


class Modules(unittest.TestCase):
    def partition(self, name, parameter):
        return {"embed.weight": [tg.Shard(0)], "up.weight": [tg.Shard(0)], "up.bias": [tg.Shard(0)],
                "down.weight": [tg.Shard(1)]}.get(name)

    def model(self):
        torch.manual_seed(5)
        return Model().double()

    def test_conversion_is_in_place(self):
        model = self.model()
        weight = model.up.weight
        weight.grad = torch.ones_like(weight)
        self.assertIs(tg.distribute_module(model, MESH, self.partition), model)
        self.assertIs(model.up.weight, weight)
        self.assertEqual(tg.placements(weight), (tg.Shard(0),))
        self.assertEqual(tg.placements(weight.grad), (tg.Shard(0),))
        self.assertIs(model.out.weight, model.embed.weight)
        self.assertEqual(tg.placements(model.out.weight), (tg.Shard(0),))
        self.assertEqual(tg.placements(model.scale), (tg.Replicate(),))
        self.assertTrue(all(p.is_leaf and isinstance(p, nn.Parameter) for p in model.parameters()))

    PATTERNS = {"embed.*": [tg.Shard(0)], "up.*": [tg.Shard(0)], "down.weight": [tg.Shard(1)]}

    def placements(self, model):
        named = (*model.named_parameters(), *model.named_buffers())
        return {name: repr(list(tg.placements(tensor))) for name, tensor in named}

    def test_patterns_place_what_they_match(self):
        model = tg.distribute_module(self.model(), MESH, self.PATTERNS)
        self.assertEqual(self.placements(model), {
            "embed.weight": "[S(0)]", "up.weight": "[S(0)]", "up.bias": "[S(0)]", "norm.weight": "[R]",
            "norm.bias": "[R]", "down.weight": "[S(1)]", "down.bias": "[R]", "scale": "[R]"})
        for patterns in ([("**", [tg.Shard(0)]), ("*.bias", [tg.Replicate()])],
                         {"**": [tg.Shard(0)], "*.bias": [tg.Replicate()]}):
            found = self.placements(tg.distribute_module(self.model(), MESH, patterns, src_data_rank=None))
            self.assertEqual((found["up.weight"], found["up.bias"], found["scale"]), ("[S(0)]", "[R]", "[S(0)]"))

    def test_a_tied_parameter_is_placed_by_any_of_its_names(self):
        model = tg.distribute_module(self.model(), MESH, {"out.weight": [tg.Shard(1)]})
        self.assertEqual(tg.placements(model.embed.weight), (tg.Shard(1),))

    def test_a_pattern_that_matches_nothing_is_refused(self):
        model = self.model()
        with self.assertRaisesRegex(tg.UsageError, "(?s)matches no parameter or buffer.*nearest embed.weight"):
            tg.distribute_module(model, MESH, {"up.*": [tg.Shard(0)], "embd.weight": [tg.Shard(0)]})
        with self.assertRaisesRegex(tg.UsageError, "has no effect"):
            tg.distribute_module(model, MESH, {"up.bias": [tg.Shard(0)], "up.*": [tg.Shard(0)]})
        with self.assertRaisesRegex(tg.UsageError, '(?s)dim 1.*tensor  "up.bias"'):
            tg.distribute_module(model, MESH, {"up.bias": [tg.Shard(1)]})
        self.assertFalse(any(map(tg.is_dtensor, model.parameters())))

    def test_what_is_distributed_already_is_not_moved_silently(self):
        model = tg.distribute_module(self.model(), MESH, self.PATTERNS)
        before = self.placements(model)
        tg.distribute_module(model, MESH, self.PATTERNS)
        tg.distribute_module(model, MESH)
        with self.assertRaisesRegex(tg.UsageError, r"(?s)placed otherwise.*up.weight.*as \[S\(1\)\].*redistribute_module"):
            tg.distribute_module(model, MESH, {"up.weight": [tg.Shard(1)]})
        self.assertEqual(self.placements(model), before)

    def test_a_module_can_be_moved(self):
        plain, model = self.model(), tg.distribute_module(self.model(), MESH, self.PATTERNS)
        words = torch.arange(11)
        optimizers = []
        for one, inputs in ((plain, words), (model, tg.shard_batch(words, MESH))):
            optimizers.append(torch.optim.AdamW(one.parameters(), lr=0.1))
            one(inputs).square().mean().backward()
            optimizers[-1].step()
        moved = {"*.weight": [tg.Shard(-1)]}
        self.assertIs(tg.redistribute_module(model, MESH, moved), model)
        tg.distribute_optimizer_state(optimizers[1])
        self.assertEqual(self.placements(model),
                         self.placements(tg.distribute_module(self.model(), MESH, moved)))
        self.assertEqual(tg.placements(model.up.weight.grad), (tg.Shard(1),))
        self.assertEqual(tg.placements(optimizers[1].state[model.up.weight]["exp_avg"]), (tg.Shard(1),))
        for one, inputs, optimizer in ((plain, words, optimizers[0]), (model, tg.shard_batch(words, MESH), optimizers[1])):
            one(inputs).square().mean().backward()
            optimizer.step()
        for p, q in zip(plain.parameters(), model.parameters()):
            torch.testing.assert_close(tg.full_tensor(q), p, rtol=1e-4, atol=1e-5)
        with tg.CommLog() as log:
            tg.redistribute_module(model, MESH, moved)
        self.assertEqual(len(log), 0)
        with self.assertRaisesRegex(tg.UsageError, "needs a module that is distributed"):
            tg.redistribute_module(plain, MESH, moved)

    def test_training_equals_the_plain_model(self):
        plain = self.model()
        placed = tg.distribute_module(copy.deepcopy(plain), MESH, self.partition)
        plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=0.1)
        optimizer = torch.optim.AdamW(placed.parameters(), lr=0.1)
        words = torch.randint(11, (3, 4), generator=torch.Generator().manual_seed(0))
        targets = words.roll(1)
        placed_words = tg.distribute_tensor(words, MESH, [tg.Shard(0)])
        placed_targets = tg.distribute_tensor(targets, MESH, [tg.Shard(0)])
        for _ in range(3):
            for model, inputs, wanted, step in ((plain, words, targets, plain_optimizer),
                                                (placed, placed_words, placed_targets, optimizer)):
                step.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), wanted.flatten())
                loss.backward()
                step.step()
            for (name, p), q in zip(plain.named_parameters(), placed.parameters()):
                torch.testing.assert_close(tg.full_tensor(q.grad), p.grad, msg=lambda m, n=name: f"gradient of {n}: {m}")
                torch.testing.assert_close(tg.full_tensor(q), p, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


if __name__ == "__main__":
    unittest.main(verbosity=1)
