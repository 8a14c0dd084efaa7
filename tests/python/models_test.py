"""Plans, replicas, clipping, groups, ranks as threads: what a training program uses besides tensors."""
import unittest

import torch
from torch import nn

import tegula as tg

tg.init(timeout=60)
MESH = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))


def numbers(*shape):
    """A tensor of numbers that all ranks have."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.up, self.down = nn.Embedding(11, 6), nn.Linear(6, 9), nn.Linear(9, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.tokens.weight  # tied
        self.register_buffer("scale", torch.full((6,), 0.5))

    def forward(self, words):
        x = self.tokens(words) * self.scale
        return self.head(x + self.down(torch.relu(self.up(x))))


def loss_of(model, words):
    return model(words).square().mean()


class Plans(unittest.TestCase):
    PLAN = {"up": tg.Colwise(), "down": "rowwise", "tokens": tg.VocabularyCut()}

    def test_a_plan_places_parameters_and_gives_the_plain_models_numbers(self):
        model, plain = Model(), Model()
        tied = model.head.weight
        self.assertIs(tg.parallelize_module(model, MESH, self.PLAN), model)
        found = {name: tg.placements(p)[0] for name, p in model.named_parameters()}
        self.assertEqual(found, {"tokens.weight": tg.Shard(0), "up.weight": tg.Shard(0), "up.bias": tg.Shard(0),
                                 "down.weight": tg.Shard(1), "down.bias": tg.Replicate()})
        self.assertIs(model.head.weight, tied)
        self.assertEqual(tg.placements(model.scale), (tg.Replicate(),))
        words = torch.tensor([[1, 10, 3], [0, 7, 7]])
        losses = loss_of(model, words), loss_of(plain, words)
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(tg.full_tensor(losses[0]), losses[1])
        for mine, theirs in zip(model.parameters(), plain.parameters()):
            torch.testing.assert_close(tg.full_tensor(mine.grad), theirs.grad)

    def test_a_plan_that_does_not_fit_says_all_that_is_wrong_and_changes_nothing(self):
        model = Model()
        with self.assertRaisesRegex(tg.UsageError, "(?s)in 2 places.*upp.*norm"):
            tg.parallelize_module(model, MESH, {"upp": "colwise", "norm": "sequence"})
        with self.assertRaisesRegex(tg.UsageError, "no style of this name"):
            tg.parallelize_module(model, MESH, {"up": "colwize"})
        self.assertFalse(any(tg.is_dtensor(p) for p in model.parameters()))

    def test_explain_is_a_table(self):
        text = tg.explain(self.PLAN, Model(), MESH)
        self.assertRegex(text, r"up\.weight +colwise +\[S\(0\)\]")
        self.assertRegex(text, r"all ")

    def test_explain_with_a_step_says_what_it_sends(self):
        model, log = Model(), tg.CommLog()

        def step(imagined):
            words = tg.zeros((4, 3), imagined, dtype=torch.int64)
            loss_of(model, words).backward()

        with log:
            text = tg.explain(self.PLAN, model, MESH, step)
        self.assertEqual(len(log), 0)
        if tg.size() > 1:
            self.assertRegex(text, r"a step sends +over +ranks +calls +bytes\n.* tp +" + str(tg.size()))
        self.assertFalse(any(tg.is_dtensor(p) or p.grad is not None for p in model.parameters()))

    def test_unequal_parts_of_a_packed_layer_are_cut_by_themselves(self):
        torch.manual_seed(0)
        layer = nn.Linear(6, 4 * (8 + 2 + 2))
        x = numbers(3, 6)
        wanted = layer(x).split([32, 8, 8], -1)
        tg.parallelize_module(layer, MESH, [("**", tg.Refused()), ("*", tg.PackedColwise([8, 2, 2]))])
        with tg.strict_mode():
            parts = layer(x).split([32, 8, 8], -1)
        for part, want in zip(parts, wanted):
            self.assertTrue(tg.placements(part)[0].is_shard())
            torch.testing.assert_close(tg.full_tensor(part), want)
        with self.assertRaisesRegex(tg.UsageError, "(?s)up.bias.*has to name it"):
            tg.parallelize_module(Model(), MESH, [("**", tg.Refused()), ("tokens", tg.VocabularyCut())])

    def test_a_style_of_ones_own_sees_the_parameter(self):
        model = Model()
        style = tg.Style("biases cut", lambda p: tg.Shard(0) if p.name == "bias" else tg.Replicate())
        tg.parallelize_module(model, MESH, {"up": style})
        self.assertEqual((tg.placements(model.up.bias), tg.placements(model.up.weight)), ((tg.Shard(0),), (tg.Replicate(),)))

    def test_placed_moves_along_one_axis_and_leaves_plain_tensors(self):
        x = tg.distribute_tensor(numbers(4, 4), MESH, [tg.Shard(0)])
        self.assertEqual(tg.placements(tg.placed(x, "tp", tg.Shard(1))), (tg.Shard(1),))
        plain = numbers(2)
        self.assertIs(tg.placed(plain, "tp", tg.Shard(0)), plain)


class Replicas(unittest.TestCase):
    def test_replicas_train_on_a_cut_batch(self):
        model, plain = Model(), Model()
        tg.replicate(model, MESH)
        words = torch.randint(0, 11, (2 * tg.size(), 3), generator=torch.Generator().manual_seed(1))
        loss_of(model, tg.shard_batch(words, MESH, "tp")).backward()
        loss_of(plain, words).backward()
        torch.testing.assert_close(tg.full_tensor(model.up.weight.grad), plain.up.weight.grad)

    def test_a_hook_on_buckets_stands_for_the_all_reduce(self):
        calls, ends = [], []

        def as_bf16(bucket):
            calls.append(len(bucket.leaves))
            self.assertEqual(bucket.flat.numel(), sum(gradient.numel() for gradient in bucket.gradients))
            self.assertTrue(all(g.shape == p.shape for g, p in zip(bucket.gradients, bucket.leaves)))
            total = bucket.group.all_reduce_async(bucket.flat.to(torch.bfloat16))

            def end():
                ends.append(bucket.flat.copy_(total.wait()))
            return end

        words = torch.randint(0, 11, (2 * tg.size(), 3), generator=torch.Generator().manual_seed(1))
        hooked, wired = Model(), Model()
        tg.replicate(hooked, MESH, hook=as_bf16)
        tg.replicate(wired, MESH, wire=torch.bfloat16, bucket_bytes=0)
        for model in (hooked, wired):
            loss_of(model, tg.shard_batch(words, MESH, "tp")).backward()
        self.assertEqual(len(calls), len(ends))
        if tg.size() > 1:
            self.assertEqual(calls, [sum(p.grad is not None for p in hooked.parameters())])
        for one, other in zip(hooked.parameters(), wired.parameters()):
            self.assertTrue(torch.equal(tg.to_local(one.grad), tg.to_local(other.grad)))

    def test_what_a_hook_on_buckets_raises_ends_the_pass(self):
        def refuses(bucket):
            raise KeyError("no such code book")

        words = torch.randint(0, 11, (2 * tg.size(), 3), generator=torch.Generator().manual_seed(1))
        model = Model()
        tg.replicate(model, MESH, hook=refuses)
        if tg.size() > 1:
            with self.assertRaisesRegex(KeyError, "no such code book"):
                loss_of(model, tg.shard_batch(words, MESH, "tp")).backward()
            self.assertTrue(all(p.grad is None for p in model.parameters()))
        with self.assertRaisesRegex(tg.UsageError, "a hook on buckets needs gradients"):
            tg.replicate(Model(), MESH, "now", hook=refuses)

    def test_no_sync_leaves_gradients_owed_and_the_next_pass_pays(self):
        model, plain = Model(), Model()
        tg.replicate(model, MESH)
        words = torch.randint(0, 11, (2 * tg.size(), 3), generator=torch.Generator().manual_seed(1))
        with tg.no_sync(MESH):
            loss_of(model, tg.shard_batch(words, MESH, "tp")).backward()
        self.assertEqual(tg.placements(model.up.weight.grad), (tg.Partial(),))
        loss_of(model, tg.shard_batch(words, MESH, "tp")).backward()
        for _ in range(2):
            loss_of(plain, words).backward()
        torch.testing.assert_close(tg.full_tensor(model.up.weight.grad), plain.up.weight.grad)

    def test_replicas_that_differ_are_named(self):
        if tg.size() == 1:
            self.skipTest("one rank")
        model = Model()
        with torch.no_grad():
            model.up.bias += tg.rank()
        with self.assertRaisesRegex(tg.UsageError, "up.bias"):
            tg.replicate(model, MESH)


class Clipping(unittest.TestCase):
    def test_the_norm_counts_each_element_once_and_clipping_scales(self):
        parameters = [tg.distribute_tensor(numbers(5, 2), MESH, [placement]).requires_grad_()
                      for placement in (tg.Shard(0), tg.Replicate())]
        for parameter in parameters:
            (parameter * parameter).sum().backward()
        expected = (2 * torch.cat([numbers(5, 2)] * 2)).norm().item()
        self.assertAlmostEqual(tg.grad_norm(parameters), expected, places=3)
        self.assertAlmostEqual(tg.grad_norm(parameters, order=float("inf")), 20.0)
        self.assertAlmostEqual(tg.clip_grad_norm_(parameters, 1.0), expected, places=3)
        self.assertAlmostEqual(tg.grad_norm(parameters), 1.0, places=3)
        tg.clip_grad_value_(parameters, 0.01)
        self.assertAlmostEqual(tg.grad_norm(parameters, order=float("inf")), 0.01)


class Groups(unittest.TestCase):
    def test_collectives_work_on_plain_tensors(self):
        group = tg.group(mesh=MESH)
        mine, ranks = torch.full((2,), float(tg.rank())), list(range(tg.size()))
        self.assertEqual((group.size, group.index, list(group.ranks)), (tg.size(), tg.rank(), ranks))
        self.assertEqual(group.all_reduce(mine).tolist(), [float(sum(ranks))] * 2)
        self.assertEqual(group.all_reduce(mine, "max").tolist(), [float(ranks[-1])] * 2)
        self.assertEqual(group.all_gather_async(mine, 0).wait().tolist(), [float(r) for r in ranks for _ in range(2)])
        self.assertEqual(group.broadcast(mine, tg.size() - 1).tolist(), [float(ranks[-1])] * 2)
        self.assertEqual(tg.group(ranks=ranks).all_reduce(torch.ones(1)).item(), tg.size())
        group.barrier()
        with self.assertRaisesRegex(tg.UsageError, "median"):
            group.all_reduce(mine, "median")
        tg.recover()

    def test_messages_carry_their_shape(self):
        group, next_rank = tg.group(), (tg.rank() + 1) % tg.size()
        if tg.size() == 1:
            self.skipTest("one rank")
        if tg.rank() == 0:
            group.send(numbers(2, 3), next_rank)
        elif tg.rank() == 1:
            self.assertTrue(torch.equal(group.recv(0), numbers(2, 3)))

    def test_gradients_go_through_collectives(self):
        x = torch.full((2,), float(tg.rank() + 1), requires_grad=True)
        tg.all_reduce(x, tg.group()).sum().backward()
        self.assertEqual(x.grad.tolist(), [float(tg.size())] * 2)


class Neighbours(unittest.TestCase):
    def test_ghost_cells_come_from_the_neighbours(self):
        x = tg.distribute_tensor(numbers(2 * tg.size()), MESH, [tg.Shard(0)])
        first = 2 * tg.rank()
        around = torch.arange(first, first + 4.0) % (2 * tg.size() + 1)  # zeros beyond both ends
        self.assertEqual(tg.halo(x, [0], [(1, 1)], "zeros").tolist(), around.tolist())
        with self.assertRaisesRegex(tg.UsageError, "no boundary of this name"):
            tg.halo(x, [0], [(1, 1)], "mirror")

    def test_rows_go_where_the_lists_say(self):
        rows = torch.full((1, 2), float(tg.rank()))
        to_everybody = [torch.tensor([0]) for _ in range(tg.size())]
        came, counts = tg.exchange(rows, to_everybody, tg.group())
        self.assertEqual((came[:, 0].tolist(), counts), ([float(r) for r in range(tg.size())], [1] * tg.size()))
        came, counts = tg.exchange(rows, [None] * tg.size(), tg.group())
        self.assertEqual((came.shape[0], counts), (0, [0] * tg.size()))


class Threads(unittest.TestCase):
    def test_ranks_as_threads_have_worlds_of_their_own(self):
        def body(factor):
            mesh = tg.init_device_mesh("cpu", (tg.size(),))
            x = tg.distribute_tensor(numbers(6), mesh, [tg.Shard(0)]).requires_grad_()
            loss = (x * factor).sum()
            loss.backward()
            return tg.rank(), loss.item(), tg.full_tensor(x.grad).sum().item()

        self.assertEqual(tg.run_ranks(3, body, 2.0), [(rank, 42.0, 12.0) for rank in range(3)])
        self.assertEqual(MESH.size(), tg.size())  # the world outside is as it was

    def test_threads_wait_for_each_other_where_torch_keeps_pythons_lock(self):
        def body():
            mesh = tg.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
            x = tg.distribute_tensor(torch.arange(4.0), mesh, [tg.Shard(0)])
            return torch.zeros(3).add_(torch.ones(3), alpha=x.sum()).tolist()  # torch reads the number itself

        self.assertEqual(tg.run_ranks(2, body, timeout=30), [[6.0] * 3] * 2)

    def test_what_a_thread_throws_is_thrown_here_and_ends_the_others(self):
        def body():
            if tg.rank() == 1:
                raise KeyError("mine")
            tg.group().barrier()

        with self.assertRaisesRegex(KeyError, "mine"):
            tg.run_ranks(2, body, timeout=30)


class Building(unittest.TestCase):
    def test_modules_are_built_in_pieces(self):
        with tg.build_distributed(MESH, lambda shape: [tg.Shard(0)]):
            layer = nn.Linear(4, 6)
        self.assertEqual(tg.placements(layer.weight), (tg.Shard(0),))
        self.assertIsInstance(layer.weight, nn.Parameter)

    def test_an_operator_of_ones_own_is_decomposed(self):
        library = torch.library.Library("tegula_models_test", "DEF")
        library.define("shifted(Tensor x, int by) -> Tensor")
        library.impl("shifted", lambda x, by: x + by, "CompositeExplicitAutograd")
        seen = []

        def shifted(x, by):
            seen.append(tg.is_dtensor(x))
            return x + by

        tg.register_decomposition(torch.ops.tegula_models_test.shifted.default, shifted)
        x = tg.distribute_tensor(numbers(4), MESH, [tg.Shard(0)])
        y = torch.ops.tegula_models_test.shifted(x, 3)
        self.assertEqual((tg.placements(y), seen), ((tg.Shard(0),), [True]))
        self.assertEqual(tg.full_tensor(y).tolist(), (numbers(4) + 3).tolist())


if __name__ == "__main__":
    unittest.main()
