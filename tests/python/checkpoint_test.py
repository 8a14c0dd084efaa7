"""Checkpoints of programs in Python: of any number of ranks, and together with programs in C++.

Usage: checkpoint_test.py <folder of programs>. Ranks are threads.
"""
import collections
import copy
import glob
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch

import tegula as tg

PROGRAMS = sys.argv.pop(1)
if os.path.isdir("/dev/shm"):
    tempfile.tempdir = "/dev/shm"  # there is nothing to wait for


def model_of(seed):
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def placed(model, dim):
    """Matrices cut along this dim over all ranks, the rest replicated."""
    mesh = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("dp",))
    return tg.distribute_module(model, mesh, lambda name, one: [tg.Shard(dim) if one.dim() == 2 else tg.Replicate()])


def step(model, optimizer, number):
    """By gradients that are facts of the parameters."""
    def closure():
        for parameter in model.parameters():
            parameter.grad = parameter.detach() / 3 + number
        return torch.zeros(())

    with torch.no_grad():
        optimizer.step(closure) if isinstance(optimizer, torch.optim.LBFGS) else (closure(), optimizer.step())


def whole(tensor):
    tensor = tensor.detach()
    return tg.full_tensor(tensor) if tg.is_dtensor(tensor) else tensor.clone()


def weights(model):
    return {name: whole(tensor) for name, tensor in model.state_dict().items()}


class Checkpoints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def assert_same(self, a, b):
        self.assertEqual(a.keys(), b.keys())
        for name, tensor in a.items():
            self.assertTrue(torch.equal(tensor, b[name]), name)

    def error(self, function, *words):
        with self.assertRaises(tg.UsageError) as caught:
            function()
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_training_goes_on_as_if_it_had_not_stopped(self):
        def made(dim):
            model = placed(model_of(1), dim)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
            return {"model": model, "optimizer": optimizer, "schedule": schedule, "random": tg.RandomState(),
                    "data": {"seen": 0, "loss": 0.5, "name": "", "last": [True, 0], "both": (1, 2.5)}}

        def train(state, steps):
            for _ in range(steps):
                step(state["model"], state["optimizer"], state["data"]["seen"])
                state["schedule"].step()
                state["data"]["seen"] += 1
            mesh = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("dp",))
            return weights(state["model"]), tg.full_tensor(tg.rand((5,), mesh, [tg.Shard(0)]))

        def first():
            tg.manual_seed(3)
            state = made(0)
            train(state, 3)
            state["data"].update(name="ein Gruß", loss=0.25, last=[False, 7], both=(3, 4.5))
            tg.save(self.folder, state, step=3)
            return train(state, 4)

        def second(dim):
            state = made(dim)
            self.assertEqual(tg.load(self.folder, state), (3, [], []))
            self.assertEqual(state["data"], {"seen": 3, "loss": 0.25, "name": "ein Gruß", "last": [False, 7],
                                             "both": (3, 4.5)})
            self.assertIs(state["data"]["last"][0], False)
            return train(state, 4)

        expected, drawn = tg.run_ranks(3, first)[0]
        for ranks, dim in [(3, 0), (2, 1), (1, 0), (4, 1)]:
            for found, numbers in tg.run_ranks(ranks, second, dim):
                self.assert_same(found, expected)
                self.assertTrue(torch.equal(numbers, drawn))

    def test_every_optimizer_of_torch_goes_on(self):
        kinds = {"Adadelta": {}, "Adafactor": {}, "Adagrad": {}, "Adam": {"betas": (0.8, 0.9)}, "AdamW": {}, "Adamax": {},
                 "ASGD": {}, "NAdam": {}, "RAdam": {}, "RMSprop": {"momentum": 0.5, "centered": True}, "Rprop": {},
                 "SGD": {"momentum": 0.9, "nesterov": True}, "LBFGS": {"max_iter": 3, "history_size": 2}}

        def run(kind, options):
            model = placed(model_of(2), 0)
            optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.05, **options)
            for number in range(3):
                step(model, optimizer, number)
            tg.save(f"{self.folder}/{kind}", {"model": model, "optimizer": optimizer})
            step(model, optimizer, 3)
            return weights(model)

        def resume(kind, options):
            model = placed(model_of(5), 1)
            optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.7)
            tg.load(f"{self.folder}/{kind}", {"model": model, "optimizer": optimizer})
            for key, value in {"lr": 0.05, **options}.items():
                self.assertEqual(optimizer.param_groups[0][key], value)
            step(model, optimizer, 3)
            return weights(model)

        for kind, options in kinds.items():
            with self.subTest(kind):
                expected = tg.run_ranks(2, run, kind, options)[0]
                found = tg.run_ranks(3, resume, kind, options)[0]
                for name, tensor in expected.items():
                    torch.testing.assert_close(found[name], tensor, rtol=1e-12, atol=1e-12)

    def test_parameters_keep_what_they_had_in_other_groups(self):
        def body():
            model = model_of(1)
            first, middle, last = model
            optimizer = torch.optim.SGD([{"params": first.parameters(), "lr": 0.1}, {"params": last.parameters(), "lr": 0.2}],
                                        lr=1.0, momentum=0.9)
            step(model, optimizer, 1)
            tg.save(self.folder, {"model": model, "optimizer": optimizer})
            other = torch.optim.SGD([{"params": last.parameters()}, {"params": first.parameters()}], lr=1.0)
            tg.load(self.folder, {"model": model, "optimizer": other})
            self.assertEqual([group["lr"] for group in other.param_groups], [0.2, 0.1])
            for parameter in [*first.parameters(), *last.parameters()]:
                self.assertTrue(torch.equal(other.state[parameter]["momentum_buffer"],
                                            optimizer.state[parameter]["momentum_buffer"]))
            mixed = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=1.0)
            self.error(lambda: tg.load(self.folder, {"model": model, "optimizer": mixed}), "had different lr: 0.1 and")
            self.error(lambda: tg.load(self.folder, {"model": model, "optimizer": torch.optim.Adam(first.parameters())}),
                       'was the state of "SGD", here is "Adam"')

        tg.run_ranks(1, body)

    def test_schedules_go_on(self):
        schedulers = torch.optim.lr_scheduler
        kinds = [lambda o: schedulers.StepLR(o, 2), lambda o: schedulers.MultiStepLR(o, [2, 3, 3]),
                 lambda o: schedulers.LambdaLR(o, lambda epoch: 0.9**epoch), lambda o: schedulers.OneCycleLR(o, 0.5, 20),
                 lambda o: schedulers.ReduceLROnPlateau(o, patience=1), lambda o: schedulers.CyclicLR(o, 0.1, 0.5, 3),
                 lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3),
                 lambda o: schedulers.SequentialLR(o, [schedulers.ConstantLR(o, 0.1, 2), schedulers.ExponentialLR(o, 0.9)],
                                                   [2])]

        def made(kind):
            model = model_of(1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
            return {"model": model, "optimizer": optimizer, "schedule": kind(optimizer)}

        def forward(state, steps):
            rates = []
            for _ in range(steps):
                step(state["model"], state["optimizer"], 1)
                is_plateau = isinstance(state["schedule"], schedulers.ReduceLROnPlateau)
                state["schedule"].step(*[1.0] * is_plateau)
                rates.append([group["lr"] for group in state["optimizer"].param_groups])
            return rates

        def body(number, kind):
            state = made(kind)
            forward(state, 4)
            tg.save(f"{self.folder}/{number}", state)
            other = made(kind)
            tg.load(f"{self.folder}/{number}", other)
            self.assertEqual(forward(other, 6), forward(state, 6))

        for number, kind in enumerate(kinds):
            tg.run_ranks(1, body, number, kind)

    def test_what_differs_by_rank_is_kept_under_its_place(self):
        def save():
            mesh = tg.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            own = {"position": 10 * tg.rank(), "noise": torch.full((2,), float(tg.rank())), "part": torch.nn.Linear(1, 1)}
            torch.nn.init.constant_(own["part"].weight, tg.rank())
            tg.save(self.folder, {"data": tg.PerRank(own, mesh), "position": tg.PerRank(tg.rank(), mesh)})

        def load():
            mesh = tg.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            own = tg.PerRank({"position": -1, "noise": torch.zeros(2), "part": torch.nn.Linear(1, 1)}, mesh)
            state = {"data": own, "position": tg.PerRank(-1, mesh)}
            tg.load(self.folder, state)
            self.assertEqual(own.value["position"], 10 * tg.rank())
            self.assertEqual(own.value["noise"].tolist(), [tg.rank()] * 2)
            self.assertEqual(own.value["part"].weight.item(), tg.rank())
            self.assertEqual(state["position"].value, tg.rank())

        def load_elsewhere():
            mesh = tg.init_device_mesh("cpu", (3,), mesh_dim_names=("dp",))
            self.error(lambda: tg.load(self.folder, {"position": tg.PerRank(-1, mesh)}), "missing", "position@dp=2")

        tg.run_ranks(4, save)
        with open(f"{self.folder}/step-0/manifest.json") as file:
            self.assertEqual(json.load(file)["values"]["data.position@dp=1,tp=0"], 20)
        tg.run_ranks(4, load)
        tg.run_ranks(3, load_elsewhere)

    def test_all_that_does_not_fit_is_one_error(self):
        def body():
            saved = torch.nn.Linear(2, 3)
            torch.nn.init.ones_(saved.weight)
            torch.nn.init.ones_(saved.bias)
            tg.save(self.folder, {"model": saved, "seen": 1, "name": "a"})
            before = torch.nn.Linear(3, 3)
            state = {"model": before, "seen": 2, "name": 5, "more": 3}
            kept = copy.deepcopy(before.state_dict())
            self.error(lambda: tg.load(self.folder, state), "does not fit", "missing more", "shape", "model.weight",
                       "kind", "name (a text in the checkpoint, an integer here)")
            self.assertEqual(state["seen"], 2)
            self.assert_same(before.state_dict(), kept)
            some = {"seen": 2, "more": 3}
            report = tg.load(self.folder, some, strict=False)
            self.assertEqual((report.missing, report.extra), (["more"], ["model.bias", "model.weight", "name"]))
            self.assertEqual(some, {"seen": 1, "more": 3})
            renamed = {"old": {"seen": 0}}
            tg.load(self.folder, renamed, only=["old.**"], renames={"seen": "old.seen"})
            self.assertEqual(renamed, {"old": {"seen": 1}})

        tg.run_ranks(2, body)

    def test_what_no_file_holds_is_refused(self):
        def body():
            self.error(lambda: tg.save(self.folder, {"data": {"x": object()}}), "no file holds", '"data.x"', "object", "hint")
            self.error(lambda: tg.save(self.folder, {"n": 2**63}), "64 bits", '"n"')
            self.error(lambda: tg.save(self.folder, {"d": {1: 2}}), "names in a state are texts")
            self.error(lambda: tg.save(self.folder, [1]), "a state is a dict")
            optimizer = torch.optim.SGD(model_of(1).parameters(), lr=1.0)
            self.error(lambda: tg.save(self.folder, {"o": optimizer}), "no module of the state has", '"o"')
            self.error(lambda: tg.save(self.folder, {"n": tg.rank()}), "different things", "add_per_rank")
            self.assertIsNone(tg.latest(self.folder))

        tg.run_ranks(2, body)

    def test_buffers_tied_weights_and_extra_state(self):
        class Counting(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(2))
                self.tied = self.weight
                self.register_buffer("kept", torch.zeros(1))
                self.register_buffer("scratch", torch.zeros(1), persistent=False)
                self.count = collections.Counter()

            def get_extra_state(self):
                return {"count": self.count, "tensor": self.kept + 1}

            def set_extra_state(self, state):
                self.count, self.loaded = state["count"], state["tensor"]

        def body():
            module = torch.nn.ModuleDict({"a": Counting()})
            module["a"].count[3] += 2
            torch.nn.init.constant_(module["a"].weight, 5)
            module["a"].kept += 1
            tg.save(self.folder, {"": module})
            other = torch.nn.ModuleDict({"a": Counting()})
            tg.load(self.folder, {"": other})
            self.assertEqual(other["a"].count, collections.Counter({3: 2}))
            self.assertEqual(other["a"].loaded.tolist(), [2])
            self.assertEqual((other["a"].tied.tolist(), other["a"].kept.tolist()), ([5, 5], [1]))

        tg.run_ranks(2, body)
        with open(f"{self.folder}/step-0/manifest.json") as file:
            self.assertEqual(list(json.load(file)["values"]), ["a._extra_state"])

    def test_complex_tensors_come_back_and_safetensors_reads_them_as_pairs(self):
        def body(ranks_of):
            mesh = tg.init_device_mesh("cpu", (tg.size(),))
            x = torch.complex(torch.arange(12.0), -torch.arange(12.0)).reshape(3, 4).to(torch.complex128)
            if ranks_of == "save":
                tg.save(self.folder, {"x": tg.distribute_tensor(x, mesh, [tg.Shard(1)]), "half": x[0].to(torch.complex32)})
            else:
                y = tg.distribute_tensor(torch.zeros_like(x), mesh, [tg.Shard(0)])
                half = torch.zeros(4, dtype=torch.complex32)
                tg.load(self.folder, {"x": y, "half": half})
                self.assertTrue(torch.equal(tg.full_tensor(y), x))
                self.assertTrue(torch.equal(torch.view_as_real(half), torch.view_as_real(x[0]).half()))

        tg.run_ranks(3, body, "save")
        tg.run_ranks(2, body, "load")
        try:
            from safetensors.torch import load_file
        except ImportError:
            return
        tensors = load_file(glob.glob(f"{self.folder}/step-0/*.safetensors")[0])
        self.assertEqual((tensors["x"].shape, tensors["x"].dtype), ((3, 4, 2), torch.float64))
        self.assertEqual(tensors["half"].dtype, torch.float16)
        self.assertEqual(torch.view_as_complex(tensors["x"])[1, 1].item(), 5 - 5j)

    def test_saves_go_on_in_the_background(self):
        def body():
            model = placed(model_of(1), 1)
            state = {"model": model, "seen": 0}
            with tg.AsyncSaver() as saver:
                for number in (1, 2):
                    state["seen"] = number
                    with torch.no_grad():
                        model[0].weight.fill_(number)
                    saver.save(self.folder, state, step=number)
                    with torch.no_grad():
                        model[0].weight.fill_(-1)
            self.assertEqual(tg.latest(self.folder), 2)
            tg.load(self.folder, state, step=1)
            self.assertEqual(state["seen"], 1)
            self.assertTrue(whole(model[0].weight).eq(1).all())
            saver = tg.AsyncSaver(most_copied=10)
            self.error(lambda: saver.save(self.folder, state, step=2), "there is a checkpoint of this step already")

        tg.run_ranks(2, body)

    def test_examples_of_the_documentation_run(self):
        def body():
            model = model_of(1)
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
            names = {"tg": tg, "model": model, "optimizer": optimizer, "steps": 200, "train": lambda number: None,
                     "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
                     "mesh": tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("dp",))}
            for documented in (tg.save, tg.load, tg.AsyncSaver, tg.PerRank):
                text = [line for line in documented.__doc__.split("\n\n")[1].split("\n") if line.strip()]
                names["state"] = names.get("state")
                exec(textwrap.dedent("\n".join(text)).replace('"run"', f'"{self.folder}/{documented.__name__}"'), names)
            self.assertEqual(tg.latest(f"{self.folder}/AsyncSaver"), 200)

        tg.run_ranks(1, body)


class WithCpp(unittest.TestCase):
    def test_what_one_language_saves_the_other_goes_on_with(self):
        def run(folder_in, folder_out, ranks):
            subprocess.run([f"{PROGRAMS}/tegula", "run", "-n", str(ranks), f"{PROGRAMS}/files", "adamw", folder_in,
                            folder_out], check=True, capture_output=True, text=True, timeout=600)

        def body(folder_in, folder_out):
            model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)).double()
            with torch.no_grad():
                for one in model.parameters():
                    one.copy_(torch.arange(one.numel(), dtype=torch.float64).reshape(one.shape) / 10)
            placed(model, 1)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            state = {"model": model, "optimizer": optimizer, "steps": 0}
            if folder_in:
                tg.load(folder_in, state)
            for _ in range(2):
                for one in model.parameters():
                    one.grad = one.detach() / 2 + 1
                optimizer.step()
                state["steps"] += 1
            tg.save(folder_out, state, step=state["steps"])
            return weights(model), state["steps"]

        with tempfile.TemporaryDirectory() as folder:
            tg.run_ranks(2, body, None, f"{folder}/py2")
            expected, _ = tg.run_ranks(1, body, f"{folder}/py2", f"{folder}/py4")[0]
            run("-", f"{folder}/cpp2", 3)
            found, steps = tg.run_ranks(2, body, f"{folder}/cpp2", f"{folder}/cpp-py4")[0]
            self.assertEqual(steps, 4)
            run(f"{folder}/py2", f"{folder}/py-cpp4", 2)
            there = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
            tg.run_ranks(1, lambda: tg.load(f"{folder}/py-cpp4", {"model": there}, strict=False))
            for name, tensor in expected.items():
                torch.testing.assert_close(found[name], tensor, rtol=1e-13, atol=1e-13)
                torch.testing.assert_close(there[name], tensor, rtol=1e-13, atol=1e-13)


if __name__ == "__main__":
    unittest.main()
