"""Random numbers under the control of torch's generator. Run by any number of ranks."""
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tegula as tg

torch.manual_seed(1000 + int(os.environ.get("TEGULA_RANK", 0)))
tg.init(timeout=60)
FIRST_SEED = torch.initial_seed()
MESH = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))

# What any number of ranks draws after torch.manual_seed(7).
PINNED = torch.tensor([0.7501521706581116, 0.7952840328216553, 0.008453071117401123, 0.25012844800949097])

CONTINUE = """
import sys
import torch
import tegula as tg
tg.init()
mesh = tg.init_device_mesh("cpu", (1,), mesh_dim_names=("one",))
torch.set_rng_state(torch.load(sys.argv[1]))
torch.save([torch.rand(3), tg.full_tensor(tg.rand((5,), mesh, [tg.Shard(0)]))], sys.argv[2])
"""


def rand(*shape):
    return tg.full_tensor(tg.rand(shape, MESH, [tg.Shard(0)]))


class Seeds(unittest.TestCase):
    def test_one_seed_gives_the_same_numbers_on_any_number_of_ranks(self):
        torch.manual_seed(7)
        self.assertTrue(torch.equal(rand(4), PINNED))

    def test_a_world_begins_with_the_seed_of_rank_0(self):
        self.assertEqual(FIRST_SEED, 1000)

    def test_a_seed_repeats_and_another_does_not(self):
        torch.manual_seed(3)
        first, second = rand(9), rand(9)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(rand(9), first))
        self.assertTrue(torch.equal(rand(9), second))
        torch.manual_seed(4)
        self.assertFalse(torch.equal(rand(9), first))
        self.assertFalse(torch.equal(first, second))

    def test_draws_of_one_rank_for_itself_change_nothing(self):
        torch.manual_seed(3)
        want, plain = [rand(9), rand(9)], torch.rand(4)
        torch.manual_seed(3)
        first = rand(9)
        if tg.rank() == tg.size() - 1:
            torch.randperm(50)
            torch.randn(700)
        self.assertTrue(torch.equal(rand(9), want[1]))
        self.assertTrue(torch.equal(first, want[0]))
        if tg.rank() != tg.size() - 1:
            self.assertTrue(torch.equal(torch.rand(4), plain))

    def test_the_seed_of_distributed_numbers_alone(self):
        torch.manual_seed(3)
        plain = torch.rand(4)
        tg.manual_seed(7)
        self.assertTrue(torch.equal(rand(4), PINNED))
        torch.manual_seed(3)
        tg.manual_seed(8)
        self.assertTrue(torch.equal(torch.rand(4), plain))

    def test_seeds_below_zero_are_as_torchs(self):
        torch.manual_seed(-3)
        first = rand(9)
        tg.manual_seed(-3)
        self.assertTrue(torch.equal(rand(9), first))

    def test_the_default_generator_may_be_passed(self):
        x = tg.zeros((4,), MESH, [tg.Shard(0)])
        torch.manual_seed(7)
        x.uniform_(generator=torch.default_generator)
        self.assertTrue(torch.equal(tg.full_tensor(x), PINNED))


class States(unittest.TestCase):
    def test_a_state_brings_its_draws_back(self):
        rand(9)
        state = torch.get_rng_state()
        first = rand(9)
        rand(9)
        torch.set_rng_state(state)
        self.assertTrue(torch.equal(rand(9), first))

    def test_forked_numbers_leave_no_trace(self):
        torch.manual_seed(3)
        want = [rand(9), rand(9)]
        torch.manual_seed(3)
        first = rand(9)
        with torch.random.fork_rng(devices=[]):
            self.assertTrue(torch.equal(rand(9), want[1]))
            torch.manual_seed(11)
            rand(9)
        self.assertTrue(torch.equal(torch.stack([first, rand(9)]), torch.stack(want)))

    def test_another_process_continues(self):
        torch.manual_seed(5)
        rand(3)
        torch.rand(2)
        state = torch.get_rng_state()
        plain, want = torch.rand(3), rand(5)
        if tg.rank() != 0:
            return
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TEGULA_")}
        with tempfile.TemporaryDirectory() as folder:
            saved, drawn = os.path.join(folder, "state"), os.path.join(folder, "drawn")
            torch.save(state, saved)
            subprocess.run([sys.executable, "-c", CONTINUE, saved, drawn], env=environment, check=True)
            got = torch.load(drawn)
        self.assertTrue(torch.equal(got[0], plain))
        self.assertTrue(torch.equal(got[1], want))

    def test_streams_of_slices_come_back(self):
        mesh = tg.init_device_mesh("cpu", (1, tg.size()), mesh_dim_names=("dp", "tp"))

        def draws():
            meshes = [mesh, mesh["tp"], mesh["dp"], mesh["tp"], mesh]
            return [tg.full_tensor(tg.rand((5,), on, [tg.Shard(0)] + [tg.Replicate()] * (on.ndim - 1))) for on in meshes]

        torch.manual_seed(3)
        rand(2)
        own, plain = tg.rng_state(), torch.get_rng_state()
        want = draws()
        self.assertEqual(len({tuple(x.tolist()) for x in want}), 5)
        torch.set_rng_state(plain)
        torch.testing.assert_close(draws(), want, rtol=0, atol=0)
        tg.set_rng_state(own)
        self.assertEqual(tg.rng_state(), own)
        torch.testing.assert_close(draws(), want, rtol=0, atol=0)


class Threads(unittest.TestCase):
    """Ranks that are threads share torch's generator, and draw as those that are processes do."""

    def on_threads(self, body):
        if tg.rank() == 0:
            for ranks in (1, 3):
                yield from tg.run_ranks(ranks, body, timeout=60)

    def test_a_seed_and_a_state_bring_the_same_draws_back(self):
        def body():
            mesh = tg.init_device_mesh("cpu", (tg.size(),))

            def draw(count):
                return tg.full_tensor(tg.rand((count,), mesh, [tg.Shard(0)]))

            torch.manual_seed(7)
            first, state = draw(4), torch.get_rng_state()
            second = draw(9)
            torch.set_rng_state(state)
            again = draw(9)
            torch.set_rng_state(state)
            with torch.random.fork_rng(devices=[]):
                draw(5)
            return first, second, again, draw(9)

        for first, *rest in self.on_threads(body):
            self.assertTrue(torch.equal(first, PINNED))
            self.assertTrue(all(torch.equal(one, rest[0]) for one in rest))

    def test_a_checkpoint_is_exact_reentrant_or_not(self):
        def body():
            mesh = tg.init_device_mesh("cpu", (tg.size(),))
            found = []
            for options in (None, {"use_reentrant": True}, {"use_reentrant": False}):
                torch.manual_seed(3)
                x = tg.ones((30, 4), mesh, [tg.Shard(0)], requires_grad=True)
                y = nn.functional.dropout(x) if options is None else checkpoint(nn.functional.dropout, x, **options)
                y.sum().backward()
                found += [tg.full_tensor(y.detach()), tg.full_tensor(x.grad)]
            return found

        for found in self.on_threads(body):
            self.assertTrue(all(torch.equal(one, found[0]) for one in found))


class Checkpoints(unittest.TestCase):
    def model(self):
        """Of small whole numbers, so that sums are exact in any order."""
        layers = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 6), nn.Dropout(0.75))
        for parameter in layers.parameters():
            numbers = torch.arange(parameter.numel()).reshape(parameter.shape)
            parameter.data = (numbers * 7 % 5 - 2).float()
        return tg.distribute_module(layers, MESH, src_data_rank=None)

    def gradients(self, run):
        model = self.model()
        x = tg.distribute_tensor(torch.arange(48.0).reshape(8, 6), MESH, [tg.Shard(0)], src_data_rank=None)
        x.requires_grad_()
        torch.manual_seed(9)
        y = run(model, run(model, x))
        y.sum().backward()
        return [tg.full_tensor(y.detach()), rand(3)] + [
            tg.full_tensor(leaf.grad) for leaf in [x, *model.parameters()]]

    def test_a_checkpoint_is_exact_reentrant_or_not(self):
        want = self.gradients(lambda model, x: model(x))
        for reentrant in (True, False):
            got = self.gradients(lambda model, x: checkpoint(model, x, use_reentrant=reentrant))
            torch.testing.assert_close(got, want, rtol=0, atol=0)


if __name__ == "__main__":
    unittest.main()
