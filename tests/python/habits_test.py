"""What plain programs do with tensors besides computing: print, list, copy, save, initialise. Run by any number of ranks."""
import copy
import io
import os
import pickle
import tempfile
import unittest

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import tegula as tg

tg.init(timeout=60)
MESH = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))
CUT = [tg.Shard(0)]


def numbers(*shape):
    """A tensor of numbers that all ranks have."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


def placed(tensor, placement=None):
    return tg.distribute_tensor(tensor, MESH, [placement or tg.Shard(0)], src_data_rank=None)


def silent(test, function):
    """What the function gives; it must not communicate."""
    with tg.CommLog() as log:
        result = function()
    test.assertEqual(len(log), 0, str(log))
    return result


class Text(unittest.TestCase):
    def test_a_replicated_tensor_shows_its_values(self):
        x = placed(numbers(2, 2), tg.Replicate())
        self.assertEqual(silent(self, lambda: repr(x)),
                         f" 1  2\n 3  4\n[ f32[2, 2] on (tp={tg.size()}) as [R] ]")

    def test_what_is_cut_shows_this_ranks_tile_and_says_so(self):
        x = placed(numbers(tg.size(), 2))
        mine = tg.rank() * 2
        self.assertEqual(silent(self, lambda: repr(x)),
                         f" {mine + 1}  {mine + 2}\n[ f32[{tg.size()}, 2] on (tp={tg.size()}) as [S(0)], "
                         f"the tile of rank {tg.rank()} ]")
        self.assertEqual(str(x), repr(x))
        self.assertEqual(f"{x}", repr(x))

    def test_what_is_owed_shows_this_ranks_part_and_says_so(self):
        x = tg.from_local(torch.tensor(0.5), MESH, [tg.Partial()])
        said = f"0.5\n[ f32[] on (tp={tg.size()}) as [P(sum)], the tile of rank {tg.rank()} ]"
        self.assertEqual(silent(self, lambda: repr(x)), said)
        self.assertEqual(silent(self, lambda: f"{x}"), said)
        self.assertEqual(f"{x:.2f}", f"{0.5 * tg.size():.2f}")  # a number: all ranks ask for it

    def test_one_rank_may_print_alone(self):
        tensors = [placed(numbers(5, 3)), placed(numbers(5, 3), tg.Replicate()),
                   tg.from_local(numbers(3), MESH, [tg.Partial()]), nn.Parameter(placed(numbers(5, 3))),
                   placed(numbers(5, 3)).to(torch.complex64).conj(), placed(numbers(5, 3) > 2)]
        if tg.rank() == 0:
            with open(os.devnull, "w") as nowhere:
                for tensor in tensors:
                    print(tensor, file=nowhere)
        self.assertEqual(placed(numbers(4)).sum().item(), 10)

    def test_a_row_of_a_cut_tensor_says_that_it_has_no_data(self):
        row = placed(numbers(tg.size() + 1, 2))[0]
        self.assertEqual(silent(self, lambda: repr(row)),
                         f"[ f32[2] on (tp={tg.size()}) as [R], a view without data of its own ]")

    def test_what_is_large_is_summarised(self):
        text = repr(tg.zeros((2000 * tg.size(),), MESH, CUT))
        self.assertEqual(text.count("\n"), 6)
        self.assertIn(f"the tile of rank {tg.rank()}, first and last 3 of each dim ]", text)

    def test_a_module_prints_its_parameters(self):
        model = tg.distribute_module(nn.Linear(3, 2), MESH)
        self.assertTrue(repr(model.bias).startswith("Parameter containing:\n"))

    def test_plain_tensors_print_as_ever(self):
        self.assertEqual(repr(torch.ones(2)), "tensor([1., 1.])")
        self.assertEqual(f"{torch.tensor(0.5):.3f}", "0.500")


class Values(unittest.TestCase):
    def test_a_list_has_the_whole_values(self):
        x = numbers(5, 3)
        for placement in (tg.Shard(0), tg.Shard(1), tg.Replicate(), tg.Partial()):
            moved = tg.redistribute(placed(x).requires_grad_(), placements=[placement])
            self.assertEqual(moved.tolist(), x.tolist())
        self.assertEqual(placed(x).sum().tolist(), 120.0)
        self.assertEqual(torch.ones(2).tolist(), [1.0, 1.0])

    def test_numpy_is_refused_with_a_hint(self):
        for use in (torch.Tensor.numpy, torch.Tensor.__array__):
            with self.assertRaisesRegex(tg.UsageError, r"(?s)no memory that numpy.*full_tensor\(x\).numpy\(\)"):
                use(placed(numbers(4)))
        self.assertEqual(torch.ones(2).numpy().sum(), 2)

    def test_new_tensors_of_values_are_replicated(self):
        x = placed(numbers(5, 3))
        for data, options in ((3, {}), ([[1, 2]], {}), ([1.5], {"dtype": torch.float64})):
            made, plain = x.new_tensor(data, **options), numbers(1).new_tensor(data, **options)
            self.assertEqual(tg.placements(made), (tg.Replicate(),))
            torch.testing.assert_close(tg.full_tensor(made), plain)
        self.assertTrue(x.new_tensor([1.0], requires_grad=True).requires_grad)
        self.assertTrue(x.new_tensor([1.0], device="meta").is_meta)
        self.assertTrue(tg.is_dtensor(x.new_tensor(placed(numbers(3)))))
        self.assertFalse(tg.is_dtensor(torch.ones(1).new_tensor([2])))

    def test_the_old_way_to_make_a_tensor_like_another(self):
        x = placed(numbers(5, 3))
        for arguments in ((), (3,), (2, 3), (torch.Size([2, 3]),), ([1, 2],)):
            made, plain = x.new(*arguments), numbers(1).new(*arguments)
            self.assertTrue(tg.is_dtensor(made))
            self.assertEqual((made.shape, made.dtype), (plain.shape, plain.dtype))
        self.assertEqual(x.new([1, 2]).tolist(), [1, 2])

    def test_sizes_compare_with_plain_tensors(self):
        x = placed(numbers(5, 3))
        self.assertTrue(x.is_same_size(numbers(5, 3)) and numbers(5, 3).is_same_size(x))
        self.assertFalse(numbers(3, 5).is_same_size(x))

    def test_pointers_are_refused_in_our_words(self):
        tensors = [placed(numbers(4)), tg.distribute_module(nn.Linear(2, 2), MESH).weight]
        for tensor in tensors:
            for use in (torch.Tensor.data_ptr, torch.Tensor.untyped_storage, torch.Tensor.share_memory_):
                with self.assertRaisesRegex(RuntimeError, r"(?s)no storage of its own.*to_local\(x\)"):
                    use(tensor)
        with self.assertRaises(tg.UsageError):
            tensors[0].untyped_storage()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Buffer(torch.tensor([2.0, 3.0, 4.0, 5.0]))

    def forward(self, x):
        return self.norm(self.up(x)) * self.scale


class Copies(unittest.TestCase):
    def test_a_tensor_is_copied_deeply(self):
        for placement in (tg.Shard(0), tg.Shard(1), tg.Replicate()):
            x = placed(numbers(5, 3), placement).requires_grad_()
            (x * x).sum().backward()
            x.note = ["kept"]
            twin, again = silent(self, lambda x=x: copy.deepcopy([x, x]))
            self.assertIs(twin, again)
            self.assertEqual((tg.spec(twin), twin.requires_grad, twin.note), (tg.spec(x), True, ["kept"]))
            self.assertIsNot(twin.note, x.note)
            with torch.no_grad():
                x.zero_()
                x.grad.zero_()
            torch.testing.assert_close(tg.full_tensor(twin.detach()), numbers(5, 3))
            torch.testing.assert_close(tg.full_tensor(twin.grad), 2 * numbers(5, 3))

    def test_a_shallow_copy_shares_memory(self):
        for x in (placed(numbers(5, 3)), nn.Parameter(placed(numbers(5, 3), tg.Shard(1)))):
            x.note = ["shared"]
            twin = silent(self, lambda x=x: copy.copy(x))
            self.assertIsNot(twin, x)
            self.assertIs(twin.note, x.note)
            self.assertEqual((type(twin), tg.spec(twin), twin.requires_grad), (type(x), tg.spec(x), x.requires_grad))
            with torch.no_grad():
                x.zero_()
            self.assertEqual(twin.abs().sum().item(), 0)
        plain = numbers(3)
        twin = copy.copy(plain)
        plain.zero_()
        self.assertEqual(twin.tolist(), [0, 0, 0])

    def test_what_is_owed_stays_owed(self):
        x = tg.from_local(numbers(3), MESH, [tg.Partial()])
        twin = silent(self, lambda: copy.deepcopy(x))
        self.assertEqual(tg.placements(twin), (tg.Partial(),))
        torch.testing.assert_close(tg.full_tensor(twin), numbers(3) * tg.size())

    def test_a_tensor_with_a_history_is_refused(self):
        x = placed(numbers(4)).requires_grad_() * 2
        with self.assertRaisesRegex(tg.UsageError, r"(?s)with a history.*f32\[4\].*detach\(\)"):
            copy.deepcopy(x)

    def test_a_module_with_buffers_is_copied(self):
        model = tg.distribute_module(Model(), MESH, {"up.*": CUT})
        twin = copy.deepcopy(model)
        self.assertIsNot(twin.scale, model.scale)
        for (name, p), q in zip(model.state_dict().items(), twin.state_dict().values()):
            self.assertEqual(tg.spec(q), tg.spec(p), name)
            torch.testing.assert_close(tg.full_tensor(q), tg.full_tensor(p))

    def test_averages_of_models_are_those_of_the_plain_program(self):
        for options in ({}, {"use_buffers": True}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}):
            torch.manual_seed(1)
            plain = Model()
            model = tg.distribute_module(copy.deepcopy(plain), MESH, {"up.*": CUT})
            averages = [AveragedModel(plain, **options), AveragedModel(model, **options)]
            for step in range(3):
                for one, average, x in ((plain, averages[0], numbers(5, 3)),
                                        (model, averages[1], tg.shard_batch(numbers(5, 3), MESH))):
                    loss = one(x * (step + 1)).square().mean()
                    one.zero_grad()
                    loss.backward()
                    with torch.no_grad():
                        for parameter in one.parameters():
                            parameter -= 0.1 * parameter.grad
                    average.update_parameters(one)
            for (name, p), q in zip(averages[0].module.state_dict().items(), averages[1].module.state_dict().values()):
                torch.testing.assert_close(tg.full_tensor(q), p, msg=lambda m, n=name: f"{n}: {m}")

    def test_pickling_is_refused_with_a_hint(self):
        model = tg.distribute_module(nn.Linear(3, 2), MESH)
        for value in (placed(numbers(4)), model.weight, {"a": [placed(numbers(4))]}, model):
            with self.assertRaisesRegex(tg.UsageError, r"(?s)cannot be pickled.*tegula.full_tensor\(x\)"):
                pickle.dumps(value)


class ErrorsOfOneRank(unittest.TestCase):
    def steps(self, fail):
        """Steps of a program that leaves out what it cannot do; what each met, the error of the failing rank first."""
        layers = tg.distribute_module(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), MESH)
        errors = []
        for step in range(6):
            x = tg.shard_batch(numbers(tg.size(), 3), MESH)
            try:
                fail(layers, x, step == 2 and tg.rank() == 1).sum().backward()
            except Exception as error:
                errors.append(error)
        return errors

    def told(self, errors, text):
        own = 1 if tg.rank() == 1 else 0
        self.assertGreater(len(errors), own)
        for error in errors[own:]:
            self.assertIsInstance(error, tg.CommError)
            self.assertIn(f"rank 1 failed: {text}", str(error))
        tg.recover()
        self.assertEqual(placed(numbers(4)).sum().item(), 10)

    def test_a_batch_that_a_rank_leaves_out_after_a_failed_op_is_an_error_of_all(self):
        def forward(layers, x, fails):
            if fails:
                x.view(7, 7)
            return layers(x)

        self.told(self.steps(forward), "aten::view")

    def test_a_batch_that_a_rank_leaves_out_after_a_failed_hook_is_an_error_of_all(self):
        def forward(layers, x, fails):
            y = layers(x)
            if fails:
                y.register_hook(lambda g: 1 / 0)
            return y

        self.told(self.steps(forward), "backward: ZeroDivisionError: division by zero")

    def test_a_batch_that_a_rank_leaves_out_after_a_failed_function_is_an_error_of_all(self):
        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(context, x):
                return x.clone()

            @staticmethod
            def backward(context, g):
                raise KeyError("no such thing")

        self.told(self.steps(lambda layers, x, fails: layers[1](Fails.apply(layers[0](x)) if fails else layers[0](x))),
                  "backward: KeyError: 'no such thing'")

    def test_a_batch_that_a_rank_leaves_out_after_a_failed_op_of_its_own_is_an_error_of_all(self):
        library = torch.library.Library("habits", "DEF")
        library.define("fails(Tensor x, bool fails) -> Tensor")
        library.impl("fails", lambda x, fails: 1 / 0 if fails else x.clone(), "CPU")

        def forward(layers, x, fails):
            torch.ops.habits.fails(x, fails)
            return layers(x)

        self.told(self.steps(forward), "habits::fails")

    def test_a_batch_that_a_rank_leaves_out_after_a_failed_function_on_tiles_is_an_error_of_all(self):
        def forward(layers, x, fails):
            return layers(tg.local_map(lambda tile: 1 / 0 if fails else tile, [x], [CUT]))

        self.told(self.steps(forward), "the function of local_map: ZeroDivisionError: division by zero")

    def test_what_all_ranks_catch_is_harmless(self):
        x = placed(numbers(4)).requires_grad_()
        for _ in range(50):
            with self.assertRaises(ZeroDivisionError):
                y = x * 2
                y.register_hook(lambda g: 1 / 0)
                y.sum().backward()
        self.assertEqual(x.sum().item(), 10)

    def test_a_recovery_tells_what_the_rank_caught_once(self):
        for catching in range(tg.size()):
            try:
                if tg.rank() == catching:
                    raise KeyError("its own")
                tg.group().barrier()
            except Exception as error:
                if tg.rank() != catching:
                    self.assertIsInstance(error, tg.CommError)
                    self.assertIn(f"tegula: rank {catching} failed: KeyError: 'its own'\n", str(error) + "\n")
                tg.recover()
        self.assertEqual(placed(numbers(4)).sum().item(), 10)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "model.pt")
        self.addCleanup(self.folder.cleanup)

    def test_saving_is_refused_before_the_file_is_touched(self):
        model = tg.distribute_module(Model(), MESH)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(placed(numbers(5, 3))).sum().backward()
        optimizer.step()
        torch.save({"epoch": 3}, self.path)
        for value in (placed(numbers(4)), model, model.state_dict(), {"state": optimizer.state_dict()}):
            with self.assertRaisesRegex(tg.UsageError, "cannot be pickled or saved"):
                torch.save(value, self.path)
            self.assertEqual(torch.load(self.path), {"epoch": 3})

    def test_what_is_plain_is_saved_as_ever(self):
        value = {"x": numbers(4), "name": "plain", "model": nn.Linear(2, 2).state_dict()}
        torch.save(value, self.path)
        self.assertEqual(torch.load(self.path)["x"].tolist(), [1, 2, 3, 4])
        with self.assertRaisesRegex(Exception, "lambda"):
            torch.save(lambda: 1, self.path)

    def test_whole_values_are_saved_and_loaded(self):
        model = tg.distribute_module(Model(), MESH, {"up.*": CUT})
        whole = {name: tg.full_tensor(value) for name, value in model.state_dict().items()}
        file = io.BytesIO()
        torch.save(whole, file)
        file.seek(0)
        plain = Model()
        plain.load_state_dict(torch.load(file))
        torch.testing.assert_close(plain.up.weight.detach(), whole["up.weight"])


class Initialisers(unittest.TestCase):
    def each_placement(self, shape):
        for placement in (tg.Shard(0), tg.Shard(1), tg.Replicate()):
            yield tg.zeros(shape, MESH, [placement], requires_grad=True)

    def test_those_that_draw_nothing_give_what_plain_ones_give(self):
        for shape, init in (((5, 3), nn.init.ones_), ((5, 3), nn.init.zeros_), ((5, 3), nn.init.eye_),
                            ((4, 4, 3), nn.init.dirac_), ((5, 3), lambda x: nn.init.constant_(x, 2.5))):
            for x in self.each_placement(shape):
                torch.testing.assert_close(tg.full_tensor(init(x).detach()), init(torch.zeros(shape)))

    def test_those_that_draw_stay_within_their_bounds(self):
        bounds = ((lambda x: nn.init.uniform_(x, 1, 2), 1, 2),
                  (lambda x: nn.init.trunc_normal_(x, 1.5, 0.3, 1, 2), 1, 2),
                  (nn.init.xavier_uniform_, -(6 / 8) ** 0.5, (6 / 8) ** 0.5),
                  (nn.init.kaiming_uniform_, -2 ** 0.5, 2 ** 0.5))
        for init, low, high in bounds:
            for x in self.each_placement((5, 3)):
                whole = tg.full_tensor(init(x).detach())
                self.assertTrue((whole >= low).all() and (whole <= high).all(), whole)
                self.assertGreater(len(set(whole.flatten().tolist())), 10)
        for init in (nn.init.normal_, nn.init.xavier_normal_, nn.init.kaiming_normal_):
            for x in self.each_placement((5, 3)):
                self.assertGreater(len(set(init(x).flatten().tolist())), 10)

    def test_orthogonal_matrices_are_orthogonal(self):
        for x in self.each_placement((5, 3)):
            whole = tg.full_tensor(nn.init.orthogonal_(x).detach())
            torch.testing.assert_close(whole.t() @ whole, torch.eye(3), rtol=1e-5, atol=1e-5)

    def test_sparse_columns_have_their_zeros(self):
        for x in self.each_placement((6, 3)):
            torch.manual_seed(2)
            with tg.implicit_replication():  # torch draws the places itself, alike on all ranks
                whole = tg.full_tensor(nn.init.sparse_(x, 0.5).detach())
            self.assertEqual((whole == 0).sum(0).tolist(), [3, 3, 3])


class Modules(unittest.TestCase):
    def test_cells_make_their_first_state_themselves(self):
        for make in (nn.LSTMCell, nn.GRUCell, nn.RNNCell, lambda i, h: nn.RNNCell(i, h, nonlinearity="relu")):
            torch.manual_seed(1)
            plain = make(3, 40)
            cell = tg.distribute_module(copy.deepcopy(plain), MESH)
            x = numbers(50, 3) / 100
            got, want = cell(tg.shard_batch(x, MESH)), plain(x)
            for one, other in zip(got, want) if isinstance(got, tuple) else ((got, want),):
                torch.testing.assert_close(tg.full_tensor(one.detach()), other.detach())

    def test_a_scripted_module_is_distributed(self):
        torch.manual_seed(1)
        plain = torch.jit.script(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
        file = io.BytesIO()
        torch.jit.save(plain, file)
        file.seek(0)
        model = tg.distribute_module(torch.jit.load(file), MESH, {"0.*": CUT})
        x = numbers(5, 3)
        for _ in range(3):  # libtorch specialises it meanwhile
            plain.zero_grad()
            model.zero_grad()
            plain(x).square().sum().backward()
            loss = model(tg.shard_batch(x, MESH)).square().sum()
            loss.backward()
        for (name, p), q in zip(plain.named_parameters(), model.parameters()):
            torch.testing.assert_close(tg.full_tensor(q.grad), p.grad, msg=lambda m, n=name: f"{n}: {m}")

    def test_a_module_without_data_gets_tiles_to_fill(self):
        with torch.device("meta"):
            model = Model()
        silent(self, lambda: tg.distribute_module(model, MESH, {"up.*": CUT}))
        self.assertEqual(tg.placements(model.up.weight), (tg.Shard(0),))
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.fill_(1)
        self.assertEqual(tg.full_tensor(model.up.weight.detach()).tolist(), torch.ones(4, 3).tolist())


class MixedPrecision(unittest.TestCase):
    def steps(self, model, place, bad_rank=None):
        """Two steps with torch's own scaler, the second with an infinity on one rank; whether each was made."""
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        made = []
        for bad in (False, True):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(place(numbers(5, 3) / 8)).float().square().mean()
            scaler.scale(loss).backward()
            if bad and bad_rank in (None, tg.rank()):
                grad = model.up.weight.grad
                (tg.to_local(grad) if tg.is_dtensor(grad) else grad).fill_(float("inf"))
            before = [p.detach().clone() for p in model.parameters()]
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            made.append(any(bool((p != b).any()) for p, b in zip(model.parameters(), before)))
        return made, scaler.get_scale()

    def test_torchs_scaler_leaves_the_same_steps_out_on_all_ranks(self):
        torch.manual_seed(1)
        plain = nn.Sequential()
        plain.add_module("up", nn.Linear(3, 4))
        plain.add_module("down", nn.Linear(4, 2))
        model = tg.distribute_module(copy.deepcopy(plain), MESH, {"up.*": CUT})
        self.assertEqual(self.steps(plain, lambda x: x), ([True, False], 512.0))
        self.assertEqual(self.steps(model, lambda x: tg.shard_batch(x, MESH), bad_rank=0), ([True, False], 512.0))
        for p, q in zip(plain.parameters(), model.parameters()):
            torch.testing.assert_close(tg.full_tensor(q.detach()), p.detach(), rtol=0.02, atol=0.02)

    def test_torchs_scaler_names_a_plain_gradient_among_distributed_ones(self):
        parameters = [placed(numbers(5, 3)).requires_grad_(), numbers(4).requires_grad_()]
        for p in parameters:
            p.grad = torch.ones_like(p)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(()))
        with self.assertRaisesRegex(RuntimeError, "an op cannot mix DTensors with a plain tensor"):
            scaler.unscale_(torch.optim.SGD(parameters, 0.1))


class Batches(unittest.TestCase):
    def test_lookups_may_be_batched(self):
        words, table = torch.tensor([[0, 1, 2], [3, 0, 1]]), numbers(2, 8, 4)
        for placement in (tg.Shard(0), tg.Shard(1), tg.Replicate()):
            with tg.implicit_replication():  # vmap makes a plain tensor, alike on all ranks
                found = torch.vmap(nn.functional.embedding)(placed(words, placement), placed(table, placement))
            torch.testing.assert_close(tg.full_tensor(found), torch.vmap(nn.functional.embedding)(words, table))


class WithoutData(unittest.TestCase):
    def test_tensors_like_another_may_be_without_data(self):
        x = placed(numbers(5, 3))
        for make in (torch.empty_like, torch.zeros_like, torch.ones_like, torch.rand_like, torch.randn_like,
                     lambda x, **o: torch.full_like(x, 2, **o), lambda x, **o: torch.randint_like(x, 2, **o),
                     lambda x, **o: x.new_empty(2, 3, **o), lambda x, **o: x.new_zeros(2, 3, **o)):
            made = silent(self, lambda make=make: make(x, device="meta"))
            self.assertTrue(made.is_meta and not tg.is_dtensor(made))
            self.assertEqual(made.shape, make(numbers(5, 3), device="meta").shape)
            self.assertFalse(make(x).is_meta)

    def test_a_tensor_without_data_becomes_tiles_to_fill(self):
        x = torch.empty(5, 3, device="meta", dtype=torch.float64, requires_grad=True)
        made = silent(self, lambda: tg.distribute_tensor(x, MESH, CUT))
        self.assertEqual((made.shape, made.dtype, made.requires_grad), (x.shape, x.dtype, True))
        self.assertEqual(nn.init.ones_(made).sum().item(), 15)


class Tiles(unittest.TestCase):
    def test_a_transposed_tile_shares_its_memory(self):
        tile = numbers(3, 2).t()
        x = tg.from_local(tile, MESH, CUT)
        self.assertEqual((x.shape, x.stride()), ((2 * tg.size(), 3), (1, 2 * tg.size())))
        x.add_(1)
        torch.testing.assert_close(tile, numbers(3, 2).t() + 1)
        torch.testing.assert_close(tg.full_tensor(x), torch.cat([tile] * tg.size()))

    def test_a_tile_with_gaps_shares_its_memory(self):
        buffer = numbers(3, 5)
        x = tg.from_local(buffer[:, :2], MESH, CUT)
        x.mul_(2)
        x.view(-1)[0] = 7
        self.assertEqual(buffer[:, 2:].tolist(), numbers(3, 5)[:, 2:].tolist())
        self.assertEqual(buffer[1:, :2].tolist(), (2 * numbers(3, 5)[1:, :2]).tolist())
        self.assertEqual(buffer[0, 0], 7 if tg.rank() == 0 else 2)

    def test_tiles_that_lie_differently_form_a_tensor(self):
        tile = numbers(3, 2).t() if tg.rank() == 0 else numbers(2, 3)
        x = tg.from_local(tile, MESH, CUT)
        self.assertEqual(x.stride(), (3, 1))
        x.view(-1).mul_(2)
        parts = [numbers(3, 2).t()] + [numbers(2, 3)] * (tg.size() - 1)
        torch.testing.assert_close(tg.full_tensor(x), 2 * torch.cat(parts))
        self.assertEqual(tg.to_local(x).data_ptr(), tile.data_ptr())

    def test_an_expanded_tile_is_copied(self):
        x = tg.from_local(torch.ones(1, 3).expand(2, 3), MESH, CUT)
        x.add_(1)
        torch.testing.assert_close(tg.full_tensor(x), torch.full((2 * tg.size(), 3), 2.0))

    def test_tiles_that_require_grad_on_some_ranks_only_are_refused_on_all(self):
        tile = torch.ones(2, requires_grad=tg.rank() == 0)
        with self.assertRaisesRegex(tg.UsageError, r"(?s)require grad on some ranks only.*rank 0  requires grad"):
            tg.from_local(tile, MESH, CUT)
        with torch.no_grad():
            self.assertFalse(tg.from_local(tile, MESH, CUT).requires_grad)


if __name__ == "__main__":
    unittest.main(verbosity=1)
