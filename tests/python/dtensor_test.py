"""tegula.dtensor: PyTorch's names for distributed tensors. Run by any number of ranks."""
import copy
import pickle
import unittest

import torch
from torch import nn

import tegula as tg
import tegula.dtensor as dt
from tegula.dtensor.debug import CommDebugMode
from tegula.dtensor.experimental import local_map
from tegula.dtensor.parallel import (
    ColwiseParallel, ParallelStyle, PrepareModuleInput, PrepareModuleInputOutput, RowwiseParallel, SequenceParallel,
    loss_parallel, parallelize_module)

tg.init(timeout=60)
MESH = dt.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))


def numbers(*shape):
    """A tensor of numbers that all ranks have."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


class Tensors(unittest.TestCase):
    def test_a_distributed_tensor_is_an_instance_of_dtensor_and_a_plain_one_is_not(self):
        x = dt.distribute_tensor(numbers(6, 2), MESH, [dt.Shard(0)])
        self.assertIsInstance(x, dt.DTensor)
        self.assertIsInstance(nn.Parameter(x), dt.DTensor)
        for other in (numbers(2), nn.Parameter(numbers(2)), 3, None):
            self.assertNotIsInstance(other, dt.DTensor)

    def test_dtensor_has_no_subclasses(self):
        with self.assertRaisesRegex(tg.UsageError, "Mine cannot be a subclass of DTensor"):
            class Mine(dt.DTensor):
                pass

    def test_attributes_belong_to_distributed_tensors_alone(self):
        x = dt.distribute_tensor(numbers(6, 2), MESH, [dt.Shard(-1)])
        self.assertEqual((x.placements, x.device_mesh), ((dt.Shard(1),), MESH))
        self.assertEqual(x._spec.tensor_meta, ((6, 2), (2, 1), torch.float32))
        self.assertEqual((x._spec.dim_map, x._spec.num_shards, x._spec.is_replicated()), ([-1, 0], tg.size(), False))
        self.assertTrue(torch.equal(x._local_tensor, x.to_local()))
        plain = numbers(2)
        for name in "placements", "device_mesh", "_spec", "_local_tensor", "full_tensor", "to_local", "redistribute":
            self.assertTrue(hasattr(x, name))
            self.assertFalse(hasattr(plain, name), name)
        plain.placements = 3  # anybody may use the name
        self.assertEqual(plain.placements, 3)
        del plain.placements
        self.assertFalse(hasattr(plain, "placements"))
        with self.assertRaisesRegex(tg.UsageError, "_local_tensor of a distributed tensor cannot be set"):
            x._local_tensor = numbers(2)

    def test_a_tensor_is_made_of_its_local_and_a_spec(self):
        x = dt.distribute_tensor(numbers(5, 2), MESH, [dt.Shard(0)])
        again = dt.DTensor(x.to_local(), x._spec, requires_grad=True)
        self.assertEqual((again._spec, again.requires_grad), (x._spec, True))
        self.assertTrue(torch.equal(again.full_tensor(), numbers(5, 2)))

    def test_tiles_of_different_sizes_without_a_shape_are_no_silent_tensor(self):
        if tg.size() == 1:
            self.skipTest("one rank")
        with self.assertRaises(tg.Error):
            dt.DTensor.from_local(torch.ones(tg.rank() + 1, 2), MESH, [dt.Shard(0)]).full_tensor()
        tg.recover()
        x = dt.DTensor.from_local(torch.ones(tg.rank() + 1, 2), MESH, [dt.Shard(0)], run_check=True)
        self.assertEqual(x.full_tensor().shape[0], tg.size() * (tg.size() + 1) // 2)

    def test_what_is_placed_so_already_stays_and_what_is_not_is_refused(self):
        x = dt.distribute_tensor(numbers(6, 2), MESH, [dt.Shard(1)])
        self.assertIs(dt.distribute_tensor(x, MESH, [dt.Shard(-1)]), x)
        with self.assertRaisesRegex(tg.UsageError, "does not move it to a different placements"):
            dt.distribute_tensor(x, MESH, [dt.Shard(0)])

    def test_a_move_in_another_dtype_gives_gradients_of_the_tensors_own(self):
        x = dt.distribute_tensor(numbers(6), MESH, [dt.Shard(0)]).requires_grad_()
        y = x.redistribute(placements=[dt.Replicate()], forward_dtype=torch.bfloat16, backward_dtype=torch.float64)
        self.assertEqual((y.dtype, y.placements), (torch.bfloat16, (dt.Replicate(),)))
        (y.float() * 3).sum().backward()
        self.assertEqual((x.grad.dtype, x.grad.placements), (torch.float32, x.placements))
        self.assertTrue(torch.equal(x.grad.full_tensor(), torch.full((6,), 3.0)))

    def test_factories_take_sizes_and_a_mesh(self):
        with MESH:
            self.assertEqual(dt.zeros(4, 2).shape, (4, 2))
        self.assertEqual(dt.ones((4, 2), device_mesh=MESH, placements=[dt.Shard(0)]).placements, (dt.Shard(0),))
        self.assertEqual(dt.full((2,), 3, dtype=torch.int32, device_mesh=MESH).full_tensor().tolist(), [3, 3])
        self.assertEqual(dt.rand(3, device_mesh=MESH, requires_grad=True).requires_grad, True)
        with self.assertRaisesRegex(tg.UsageError, "no mesh is given"):
            dt.zeros(4)

    def test_methods_in_front_of_torchs_own_look_like_them(self):
        plain = numbers(1)
        self.assertEqual((plain.tolist(), torch.Tensor.tolist(plain)), ([1.0], [1.0]))
        self.assertEqual(torch.Tensor.tolist.__name__, "tolist")
        self.assertEqual(copy.deepcopy(plain), plain)
        with self.assertRaises(TypeError):
            plain.tolist(1, 2)


    def test_a_checkpoint_asks_for_the_boxes_of_a_tile(self):
        whole = torch.arange(12.0).reshape(12, 1)
        x = tg.distribute_tensor(whole, MESH, [tg.Shard(0, blocks=2)])
        boxes = [(chunk.offsets[0], chunk.sizes[0]) for chunk in x.__create_chunk_list__()]
        self.assertEqual(len(boxes), 2)
        items = x.__create_write_items__("x", x)
        for item, (begin, size) in zip(items, boxes):
            self.assertEqual(x.__get_tensor_shard__(item.index).tolist(), whole[begin:begin + size].tolist())
        with self.assertRaisesRegex(tg.UsageError, "no value that a checkpoint could hold"):
            tg.from_local(whole, MESH, [tg.Partial()]).__create_chunk_list__()
        self.assertFalse(hasattr(whole, "__create_chunk_list__"))


class Placements(unittest.TestCase):
    def test_placements_say_what_they_are(self):
        said = [(p.is_shard(), p.is_replicate(), p.is_partial()) for p in (dt.Shard(1), dt.Replicate(), dt.Partial("max"))]
        self.assertEqual(said, [(True, False, False), (False, True, False), (False, False, True)])
        self.assertEqual((dt.Shard(1).is_shard(1), dt.Shard(1).is_shard(0)), (True, False))
        self.assertEqual((dt.Partial("max").is_partial("max"), dt.Partial().is_partial("max")), (True, False))
        self.assertIsInstance(dt.Shard(0), dt.Placement)
        self.assertNotIsInstance(0, dt.Placement)

    def test_placements_can_be_copied_and_pickled(self):
        for placement in (dt.Shard(-1), tg.Shard(0, sizes=[3, 1]), dt.Replicate(), dt.Partial("avg"), tg.MaskPartial(7)):
            self.assertEqual(pickle.loads(pickle.dumps(placement)), placement)
            self.assertEqual(copy.deepcopy(placement), placement)


class Meshes(unittest.TestCase):
    def setUp(self):
        self.mesh = dt.init_device_mesh("cpu", (1, tg.size()), mesh_dim_names=("dp", "tp"))

    def test_a_mesh_answers_in_pytorchs_words(self):
        mesh = self.mesh
        self.assertIsInstance(mesh, dt.DeviceMesh)
        self.assertEqual((mesh.size(), mesh.size(1), mesh.size("dp"), mesh.mesh_dim_names), (tg.size(), tg.size(), 1, ("dp", "tp")))
        self.assertEqual((mesh.get_rank(), mesh.get_local_rank("tp"), mesh.get_coordinate()), (tg.rank(), tg.rank(), (0, tg.rank())))
        self.assertEqual(mesh.mesh.tolist(), [list(range(tg.size()))])
        with self.assertRaisesRegex(tg.UsageError, "needs the name of one"):
            mesh.get_local_rank()
        with self.assertRaisesRegex(tg.UsageError, "no such axis"):
            mesh.size(2)

    def test_a_flattened_slice_is_known_by_its_name(self):
        flat = self.mesh["dp", "tp"]._flatten("all")
        self.assertEqual((self.mesh["all"], flat.names), (flat, ("all",)))
        self.assertEqual(flat._unflatten(0, (tg.size(), 1), ("a", "b")).shape, (tg.size(), 1))
        self.assertEqual(copy.deepcopy(self.mesh), self.mesh)

    def test_a_mesh_is_made_of_listed_ranks(self):
        back = dt.DeviceMesh("cpu", list(reversed(range(tg.size()))), mesh_dim_names=("back",))
        self.assertEqual(back.get_local_rank(), tg.size() - 1 - tg.rank())

    def test_a_process_group_needs_torch_distributed(self):
        with self.assertRaisesRegex(tg.UsageError, "tegula.group"):
            MESH.get_group()


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, x, scale=None):
        y = self.down(self.up(x).relu())
        return y if scale is None else y * scale


class Styles(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model, self.plain = Feed(), Feed()
        self.plain.load_state_dict(self.model.state_dict())

    def test_columns_then_rows_give_the_plain_layers_numbers(self):
        parallelize_module(self.model, MESH, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        self.assertEqual([p.placements for p in (self.model.up.weight, self.model.up.bias, self.model.down.weight, self.model.down.bias)],
                         [(dt.Shard(0),), (dt.Shard(0),), (dt.Shard(1),), (dt.Replicate(),)])
        self.assertNotIsInstance(self.model.norm.weight, dt.DTensor)  # nothing is said of it
        x = numbers(3, 4) / 10
        for model in self.model, self.plain:
            model(x).square().sum().backward()
        torch.testing.assert_close(self.model(x), self.plain(x))
        torch.testing.assert_close(self.model.up.weight.grad.full_tensor(), self.plain.up.weight.grad)

    def test_parameters_stay_the_objects_that_an_optimizer_knows(self):
        weight = self.model.up.weight
        parallelize_module(self.model, MESH, {"up": ColwiseParallel()})
        self.assertIs(self.model.up.weight, weight)

    def test_arguments_by_name_have_layouts(self):
        parallelize_module(self.model, MESH, {
            "": PrepareModuleInputOutput(
                input_layouts=(dt.Replicate(),), desired_input_layouts=(dt.Replicate(),),
                input_kwarg_layouts={"scale": dt.Replicate()}, desired_input_kwarg_layouts={"scale": dt.Replicate()},
                output_layouts=dt.Replicate(), desired_output_layouts=dt.Replicate()),
            "up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel(use_local_output=False)})
        x, scale = numbers(3, 4) / 10, torch.tensor([2.0, 3.0, 4.0, 5.0])
        self.assertNotIsInstance(self.model(x, scale=scale), dt.DTensor)
        torch.testing.assert_close(self.model(x, scale=scale), self.plain(x, scale=scale))

    def test_layouts_that_do_not_fit_the_call_are_refused(self):
        with self.assertRaisesRegex(tg.UsageError, "input_layouts and desired_input_layouts differ in number"):
            PrepareModuleInput(input_layouts=(dt.Replicate(), None), desired_input_layouts=(dt.Replicate(),))
        parallelize_module(self.model, MESH, PrepareModuleInput(input_layouts=(dt.Replicate(), None),
                                                                desired_input_layouts=(dt.Replicate(), None)))
        with self.assertRaisesRegex(tg.UsageError, "the inputs of the module and input_layouts"):
            self.model(numbers(3, 4))

    def test_a_style_for_linear_layers_refuses_others_by_name(self):
        with self.assertRaisesRegex(tg.UsageError, "ColwiseParallel is for Linear and Embedding"):
            parallelize_module(self.model, MESH, {"norm": ColwiseParallel()})

    def test_a_pattern_without_a_module_is_warned_about(self):
        with self.assertWarnsRegex(UserWarning, 'no submodule matches "upp"'):
            parallelize_module(self.model, MESH, {"upp": ColwiseParallel()})

    def test_a_style_of_ones_own_is_applied(self):
        class Frozen(ParallelStyle):
            def _apply(self, module, device_mesh):
                return dt.distribute_module(module, device_mesh).requires_grad_(False)

        parallelize_module(self.model, MESH, {"norm": Frozen()})
        self.assertEqual([(p.requires_grad, p.placements) for p in self.model.norm.parameters()], [(False, (dt.Replicate(),))] * 2)

    def test_norms_work_on_a_cut_sequence(self):
        norm, plain = self.model.norm, self.plain.norm
        parallelize_module(norm, MESH, SequenceParallel(sequence_dim=0))
        x = dt.distribute_tensor(numbers(6, 6), MESH, [dt.Shard(0)])
        y = norm(x)
        self.assertEqual(y.placements, (dt.Shard(0),))
        torch.testing.assert_close(y.full_tensor(), plain(numbers(6, 6)))

    def test_large_plain_targets_count_as_replicated_in_loss_parallel(self):
        logits = dt.distribute_tensor(numbers(2000, 4) / 1000, MESH, [dt.Shard(1)])
        target = torch.arange(2000) % 4
        with loss_parallel():
            loss = nn.functional.cross_entropy(logits, target)
        torch.testing.assert_close(loss.full_tensor(), nn.functional.cross_entropy(numbers(2000, 4) / 1000, target))


class Tools(unittest.TestCase):
    def test_collectives_are_counted_by_pytorchs_names(self):
        x = dt.distribute_tensor(numbers(6, 2), MESH, [dt.Shard(0)])
        with CommDebugMode() as mode:
            x.redistribute(placements=[dt.Replicate()])
        gathers = 1 if tg.size() > 1 else 0
        self.assertEqual(mode.get_comm_counts()[torch.ops.c10d_functional.all_gather_into_tensor], gathers)
        self.assertEqual(mode.get_total_counts(), gathers)

    def test_local_map_refuses_what_is_placed_otherwise(self):
        x = dt.distribute_tensor(numbers(6, 2), MESH, [dt.Shard(0)])
        double = local_map(lambda t: t * 2, out_placements=[dt.Replicate()], in_placements=([dt.Replicate()],))
        with self.assertRaisesRegex(tg.UsageError, "redistribute_inputs=True"):
            double(x)
        with self.assertRaisesRegex(tg.UsageError, "gives 2 results, and out_placements is about 1"):
            local_map(lambda t: (t, t), out_placements=[dt.Shard(0)])(x)

    def test_names_that_are_not_here_refuse_under_patch(self):
        tg.patch()
        import torch.distributed.tensor as theirs
        from torch.distributed.tensor.experimental import context_parallel

        self.assertIs(theirs.DTensor, dt.DTensor)
        self.assertIs(theirs.distribute_tensor, dt.distribute_tensor)
        with self.assertRaisesRegex(tg.UsageError, "context_parallel is not there under tegula.patch"):
            context_parallel(None)


if __name__ == "__main__":
    unittest.main()
