"""tegula.patch(): what a program that was written for PyTorch's DTensor meets. Run by 2 or 4 ranks."""
import io
import os
import shutil
import unittest
import warnings
import weakref

import torch
from torch import nn

import tegula as tg

tg.patch()

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, experimental, ones
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._utils import ExplicitRedistributionContext, compute_local_shape_and_global_offset
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

MESH = init_device_mesh("cpu", (int(os.environ["TEGULA_WORLD_SIZE"]),))
RANK, RANKS = dist.get_rank(), dist.get_world_size()
GRID = init_device_mesh("cpu", (RANKS // 2, 2), mesh_dim_names=("dp", "tp"))


def numbers(*shape):
    """A tensor of numbers that all ranks have."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


class Values(unittest.TestCase):
    def test_tensors_are_ours_and_what_they_are_asked_for_is_pytorchs(self):
        x = distribute_tensor(numbers(6, 2), MESH, [Shard(-1)])
        self.assertTrue(tg.is_dtensor(x) and isinstance(x, DTensor))
        self.assertEqual(DTensor.__module__.split(".")[0], "tegula")
        for value in MESH, x.placements[0], x._spec:
            self.assertEqual(type(value).__module__.split(".")[0], "torch")
        self.assertIs(x.device_mesh, MESH)
        self.assertEqual((x.placements, repr(x.placements)), ((Shard(1),), "(Shard(dim=1),)"))
        self.assertIsInstance(x._spec, DTensorSpec)
        self.assertEqual((x._spec.dim_map, x._spec.num_shards), ([-1, 0], RANKS))

    def test_placements_of_both_kinds_are_taken(self):
        for placement in Shard(0), tg.Shard(0):
            self.assertEqual(distribute_tensor(numbers(4), MESH, [placement]).placements, (Shard(0),))
        with self.assertRaisesRegex(tg.UsageError, "this is no placement"):
            distribute_tensor(numbers(4), MESH, ["Shard(0)"])

    def test_a_lookup_in_a_cut_table_owes_what_pytorch_calls_a_masked_sum(self):
        table = distribute_tensor(numbers(8, 2), MESH, [Shard(0)])
        found = nn.functional.embedding(distribute_tensor(torch.tensor([1, 7]), MESH, [Replicate()]), table)
        self.assertTrue(found.placements[0].is_partial())
        self.assertEqual(found.full_tensor().tolist(), [[3.0, 4.0], [15.0, 16.0]])

    def test_slices_of_pytorchs_meshes_are_slices_of_ours(self):
        whole = numbers(4, 4)
        x, y = distribute_tensor(whole, GRID, [Shard(0), Replicate()]), distribute_tensor(whole, GRID["tp"], [Shard(1)])
        self.assertEqual((x.device_mesh, y.device_mesh), (GRID, GRID["tp"]))
        self.assertEqual((x + y).device_mesh, GRID)
        self.assertEqual((x + y).full_tensor().tolist(), (whole * 2).tolist())

    def test_flattened_and_unflattened_meshes_hold_what_pytorch_says(self):
        flat = GRID["dp", "tp"]._flatten("all_of_it")
        again = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("one",))._unflatten(0, (2, RANKS // 2), ("a", "b"))
        swapped = DeviceMesh("cpu", torch.arange(RANKS).flip(0))
        for mesh, placements in ((flat, [Shard(0)]), (again, [Shard(1), Shard(0)]), (swapped, [Shard(0)])):
            whole = numbers(9, 5)
            x = distribute_tensor(whole, mesh, placements)
            shape, offset = compute_local_shape_and_global_offset(whole.shape, mesh, placements)
            part = whole[tuple(slice(begin, begin + size) for begin, size in zip(offset, shape))]
            self.assertEqual(x.to_local().tolist(), part.tolist())
            self.assertEqual(x.full_tensor().tolist(), whole.tolist())

    def test_pytorchs_strided_shards_are_cuts_in_another_order(self):
        whole = numbers(4 * RANKS, 2)
        placements = [_StridedShard(0, split_factor=2), Shard(0)]
        x = distribute_tensor(whole, GRID, placements)
        shape, offset = compute_local_shape_and_global_offset(whole.shape, GRID, placements)
        self.assertEqual(x.to_local().tolist(), whole[offset[0]:offset[0] + shape[0]].tolist())
        self.assertEqual(x.redistribute(placements=[Replicate()] * 2).to_local().tolist(), whole.tolist())
        if RANKS > 2:  # an axis of one rank cuts nothing
            self.assertEqual((x._spec.placements, x._spec.shard_order), ((Shard(0), Shard(0)), ((0, (1, 0)),)))
        self.assertEqual(DTensor(x.to_local(), x._spec).full_tensor().tolist(), whole.tolist())

    def test_a_mesh_that_a_with_statement_holds_is_the_default(self):
        with MESH:
            self.assertIs(ones(RANKS, placements=[Shard(0)]).device_mesh, MESH)
        with self.assertRaisesRegex(tg.UsageError, "no mesh is given"):
            ones(RANKS)

    def test_tiles_of_one_size_make_a_whole_without_a_word_of_others(self):
        tile = numbers(8, 4, 8).permute(1, 2, 0)  # dim 1 runs fastest
        with CommDebugMode() as counted:
            x = DTensor.from_local(tile, MESH, [Shard(1)])
        self.assertEqual((x.shape, x.stride()), ((4, 8 * RANKS, 8), (8 * RANKS, 1, 32 * RANKS)))
        self.assertEqual(counted.get_total_counts(), 0)

    def test_a_whole_needs_shape_and_stride_and_a_tile_that_is_plain(self):
        for given in {"shape": (RANKS, 2)}, {"stride": (2, 1)}:
            with self.assertRaisesRegex(tg.UsageError, "pass both shape and stride"):
                DTensor.from_local(torch.ones(1, 2), MESH, [Shard(0)], **given)
        with self.assertRaisesRegex(tg.UsageError, "only accepts torch.Tensor, and this one is distributed"):
            DTensor.from_local(ones(2, device_mesh=MESH), MESH, [Shard(0)])

    def test_a_tile_of_a_parameter_counts_as_a_parameter(self):
        x = distribute_tensor(numbers(RANKS, 2), MESH, [Shard(0)])
        self.assertIsInstance(nn.Parameter(x).to_local(), nn.Parameter)
        self.assertNotIsInstance(x.to_local(), nn.Parameter)

    def test_a_dtensor_made_of_a_tile_with_gradients_warns_that_these_do_not_come(self):
        x = distribute_tensor(numbers(RANKS, 2), MESH, [Shard(0)])
        with self.assertWarnsRegex(UserWarning, "gradients do not reach the local tensor"):
            DTensor(x.to_local().requires_grad_(), x._spec, requires_grad=False)

    def test_strides_of_its_own_keep_a_tensors_cut(self):
        x = distribute_tensor(numbers(2 * RANKS, 3), MESH, [Shard(0)])
        same = x.as_strided(x.size(), x.stride(), x.storage_offset())
        self.assertEqual((same.placements, same.to_local().tolist()), ((Shard(0),), x.to_local().tolist()))

    def test_what_a_functional_collective_gives_is_a_tile_and_other_subclasses_are_not(self):
        from torch.distributed._functional_collectives import all_reduce
        from torch.testing._internal.two_tensor import TwoTensor

        x = DTensor.from_local(all_reduce(torch.ones(2), "sum", MESH), MESH, [Shard(0)])
        self.assertEqual(x.full_tensor().tolist(), [float(RANKS)] * 2 * RANKS)
        for make in DTensor.from_local, distribute_tensor:
            with self.assertRaisesRegex(tg.UsageError, "a subclass with operators of its own"):
                make(TwoTensor(torch.ones(2), torch.ones(2)), MESH, [Shard(0)])

    def test_ranks_outside_of_a_mesh_know_the_whole_and_hold_nothing(self):
        last = DeviceMesh("cpu", [RANKS - 1])
        x = DTensor.from_local(torch.ones(3, 4), last, [Shard(0)]) + 2
        self.assertEqual(x.shape, (3, 4))
        self.assertEqual(x.to_local().numel(), 12 if RANK == RANKS - 1 else 0)


class Files(unittest.TestCase):
    def test_a_rank_saves_its_tile_and_loads_it_again(self):
        x = distribute_tensor(numbers(2 * RANKS, 3), MESH, [Shard(0)]).requires_grad_()
        file = io.BytesIO()
        torch.save({"x": x, "w": nn.Parameter(x.detach())}, file)
        for weights_only in True, False:
            file.seek(0)
            state = torch.load(file, weights_only=weights_only)
            self.assertIsInstance(state["w"], nn.Parameter)
            self.assertEqual((state["x"].placements, state["x"].device_mesh, state["x"].requires_grad), ((Shard(0),), MESH, True))
            self.assertEqual(state["x"].full_tensor().tolist(), x.full_tensor().tolist())

    def test_checkpoints_are_written_while_the_program_goes_on(self):
        import tempfile

        import torch.distributed.checkpoint as dcp

        folder = [tempfile.mkdtemp() if RANK == 0 else None]
        dist.broadcast_object_list(folder)
        x = distribute_tensor(numbers(2 * RANKS, 3), MESH, [Shard(0)])
        written = dcp.async_save({"x": x}, checkpoint_id=folder[0])
        x.zero_()
        written.result()
        found = {"x": distribute_tensor(torch.zeros(2 * RANKS, 3), MESH, [Shard(1)])}
        dcp.load(found, checkpoint_id=folder[0])
        self.assertEqual(found["x"].full_tensor().tolist(), numbers(2 * RANKS, 3).tolist())
        dist.barrier()
        if RANK == 0:
            shutil.rmtree(folder[0])

    def test_another_ranks_tile_is_refused(self):
        file = io.BytesIO()
        torch.save([distribute_tensor(numbers(RANKS), MESH, [placement]) for placement in (Shard(0), Replicate())], file)
        files = [None] * RANKS
        dist.all_gather_object(files, file.getvalue())
        other = io.BytesIO(files[(RANK + 1) % RANKS])
        with self.assertRaisesRegex(tg.UsageError, "saved by another rank"):
            torch.load(other, weights_only=False)


class Counts(unittest.TestCase):
    def test_collectives_of_tensors_and_of_the_program_are_counted_forward_and_backward(self):
        names = torch.ops.c10d_functional
        x = distribute_tensor(numbers(RANKS, 2), MESH, [Shard(0)]).requires_grad_()
        with CommDebugMode() as counted:
            y = x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
            y.sum().backward()
            dist.all_reduce(torch.ones(1))
        self.assertEqual(counted.comm_counts[names.all_gather_into_tensor], 1)
        self.assertEqual(counted.comm_counts[torch.ops.c10d.allreduce_], 1)
        both = counted.comm_module_counts["Global"]
        self.assertEqual((sum(both["forward"].values()), both["backward"]), (2, {names.reduce_scatter_tensor: 1}))
        self.assertEqual(counted.get_total_counts(), 3)


class Rules(unittest.TestCase):
    def test_collectives_are_counted_by_module(self):
        model = nn.Sequential(nn.Linear(4, 2 * RANKS), nn.Linear(2 * RANKS, 4, bias=False))
        parallelize_module(model, MESH, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        mode, reduce = CommDebugMode(), torch.ops.c10d_functional.all_reduce
        with mode:
            self.assertEqual((mode.get_parameter_info(), mode.comm_module_counts["Global"]["forward"]), ({}, {}))
            loss = model(numbers(3, 4).requires_grad_()).sum()
            self.assertEqual(mode.comm_module_counts["Sequential.1"]["forward"][reduce], 1)
            loss.backward()
        counts = mode.comm_module_counts
        for module in "Global", "Sequential", "Sequential.1":
            self.assertEqual(dict(counts[module]["forward"]), {reduce: 1}, module)
        self.assertNotIn("forward", [phase for phase, sent in counts.get("Sequential.0", {}).items() if sent])
        self.assertEqual(dict(counts["Global"]["backward"]), {reduce: 1})  # of the gradient of what was put in
        self.assertEqual(mode.get_sharding_info()["Sequential.0.weight"], (Shard(0),))
        self.assertEqual(list(mode.get_parameter_info()), ["Sequential.0", "Sequential.1"])
        table = mode.generate_comm_debug_tracing_table(noise_level=1)
        self.assertIn("c10d_functional.all_reduce: 1", table)
        self.assertIn("(Shard(dim=0),)", table)

    def test_a_registered_way_is_taken_that_moves_least(self):
        @torch.library.custom_op("patched::scaled", mutates_args=())
        def scaled(x: torch.Tensor, factors: torch.Tensor, by: float) -> torch.Tensor:
            return x * factors * by

        scaled.register_fake(lambda x, factors, by: torch.empty_like(x))

        @experimental.register_sharding(torch.ops.patched.scaled.default)
        def ways(x, factors, by):
            return [([Replicate()], [Replicate(), Replicate(), None])] + [
                ([Shard(dim)], [Shard(dim), Replicate() if dim + 1 < x.ndim else Shard(0), None]) for dim in range(x.ndim)]

        whole, factors = numbers(3, 2 * RANKS), numbers(2 * RANKS)
        for dim in 0, 1:
            x, f = distribute_tensor(whole, MESH, [Shard(dim)]), distribute_tensor(factors, MESH, [Replicate()])
            with CommDebugMode() as counted:
                y = torch.ops.patched.scaled(x, f, 2.0)
            self.assertEqual((y.placements, counted.get_total_counts()), ((Shard(dim),), 0))
            self.assertEqual(y.full_tensor().tolist(), (whole * factors * 2).tolist())

    def test_a_registered_way_may_write_to_what_it_is_given_by_name(self):
        library = torch.library.Library("patched_out", "DEF")
        library.define("added(Tensor x, *, Tensor y, Tensor(a!) out) -> Tensor(a!)")
        library.impl("added", lambda x, *, y, out: out.copy_(x + y), "CompositeExplicitAutograd")

        @experimental.register_sharding(torch.ops.patched_out.added.default)
        def ways(x, y, out):
            return [([Shard(0)], [Shard(0), Shard(0), Shard(0)])]

        whole = numbers(RANKS + 1, 2)
        for placement in Shard(0), Replicate():
            x, out = distribute_tensor(whole, MESH, [Shard(0)]), distribute_tensor(0 * whole, MESH, [placement])
            got = torch.ops.patched_out.added(x, y=x, out=out)
            self.assertEqual(got.placements, (placement,))
            self.assertEqual(out.full_tensor().tolist(), (2 * whole).tolist())

    def test_movements_that_nobody_asked_for_are_refused_where_the_program_says_so(self):
        x = distribute_tensor(numbers(RANKS, RANKS), MESH, [Shard(0)])
        with ExplicitRedistributionContext():
            with self.assertRaisesRegex(tg.UsageError, "strict"):
                x @ x
            with ExplicitRedistributionContext(enable=False):
                product = x @ x
            with self.assertRaisesRegex(tg.UsageError, "strict"):
                x @ x
        self.assertEqual(product.full_tensor().tolist(), (numbers(RANKS, RANKS) @ numbers(RANKS, RANKS)).tolist())
        with self.assertRaisesRegex(tg.UsageError, "not warned of"):
            ExplicitRedistributionContext(mode="warn")

    def test_another_spec_is_another_meaning_of_the_tile(self):
        x = DTensor.from_local(numbers(2, 2), MESH, [Replicate()])
        spec = DTensor.from_local(numbers(2, 2), MESH, [Shard(0)])._spec
        x._spec = spec
        self.assertEqual((x.shape, x.placements), ((2 * RANKS, 2), (Shard(0),)))
        self.assertEqual(x.to_local().tolist(), numbers(2, 2).tolist())

    def test_a_compiled_module_with_a_plan_runs_as_it_is(self):
        model = nn.Sequential(nn.Linear(4, 2 * RANKS), nn.Linear(2 * RANKS, 4))
        parallelize_module(model, MESH, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.compile(model, backend="eager")(numbers(3, 4))
        torch.testing.assert_close(found, model(numbers(3, 4)))

    def test_names_that_are_not_here_say_so(self):
        with self.assertRaisesRegex(tg.UsageError, "context_parallel is not there under tegula.patch"):
            experimental.context_parallel(None)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.other = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.seen = None

    def forward(self, x, takes_other=False):
        self.seen = weakref.ref(self.up.weight)
        assert not isinstance(self.up.weight, DTensor)
        return torch.tanh((self.other if takes_other else self.up)(x)).sum()


def sharded_block(**options):
    torch.manual_seed(0)
    return fully_shard(Block(4), mesh=MESH, **options)


class FullySharded(unittest.TestCase):
    def test_autograd_keeps_no_gathered_parameter_unless_asked(self):
        for reshards in True, False:
            block = sharded_block(reshard_after_forward=reshards)
            loss = block(torch.full((3, 4), 1.0 + RANK, requires_grad=True))
            self.assertEqual(block.seen() is None, reshards)
            loss.backward()
            self.assertEqual(block.up.weight.grad.placements, (Shard(0),))

    def test_gradients_are_the_mean_of_the_ranks(self):
        block = sharded_block()
        self.assertIsInstance(block, FSDPModule)
        block(torch.full((3, 4), 1.0 + RANK)).backward()
        alone = Block(4)
        alone.load_state_dict({name: parameter.full_tensor() for name, parameter in block.state_dict().items()})
        for rank in range(RANKS):
            (alone(torch.full((3, 4), 1.0 + rank)) / RANKS).backward()
        torch.testing.assert_close(block.up.weight.grad.full_tensor(), alone.up.weight.grad)

    def test_a_gradient_that_was_held_is_reduced_though_the_last_pass_does_not_reach_it(self):
        block = sharded_block()
        block.set_requires_gradient_sync(False)
        block(torch.full((3, 4), 1.0 + RANK)).backward()
        self.assertIsNone(block.up.weight.grad)
        block.set_requires_gradient_sync(True)
        block(torch.full((3, 4), 1.0 + RANK), takes_other=True).backward()
        again = sharded_block()
        again(torch.full((3, 4), 1.0 + RANK)).backward()
        torch.testing.assert_close(block.up.weight.grad.full_tensor(), again.up.weight.grad.full_tensor())
        self.assertIsNotNone(block.other.weight.grad)

    def test_a_parameter_that_is_written_before_backward_is_noticed(self):
        block = sharded_block()
        loss = block(torch.ones(3, 4, requires_grad=True))
        with torch.no_grad():
            block.up.weight.mul_(2)
        with self.assertRaisesRegex(tg.UsageError, "written between forward and backward"):
            loss.backward()

    def test_ranks_that_were_seeded_otherwise_keep_each_their_own_part(self):
        torch.manual_seed(RANK)
        model = nn.Linear(4, 2 * RANKS)
        own = model.weight.detach()[2 * RANK:2 * RANK + 2].clone()
        self.assertEqual(fully_shard(model, mesh=MESH).weight.to_local().tolist(), own.tolist())
        torch.manual_seed(RANK)
        replicas = fully_shard(nn.Linear(4, 4), mesh=GRID).weight
        torch.manual_seed(0)
        self.assertEqual(replicas.full_tensor().tolist(), nn.Linear(4, 4).weight.tolist())

    def test_collectives_of_the_programs_own_and_meshes_of_more_than_data_are_refused(self):
        model = fully_shard(nn.Linear(4, 4), mesh=GRID)
        for refused in model.set_all_reduce_hook, model.set_custom_all_gather, model.set_custom_reduce_scatter:
            with self.assertRaisesRegex(tg.UsageError, "gradients reduced by Tegula's collectives"):
                refused(print)
        with self.assertRaisesRegex(tg.UsageError, "fully_shard takes the mesh of the data alone"):
            fully_shard(nn.Linear(4, 4), mesh=GRID, dp_mesh_dims="dp")
        model.set_unshard_in_backward(True)
        model.reset_iter_state()

    def test_checkpointed_blocks_are_computed_again(self):
        from torch.utils.checkpoint import checkpoint

        block, again = sharded_block(), sharded_block()
        x = torch.full((3, 4), 1.0 + RANK, requires_grad=True)
        checkpoint(block, x, use_reentrant=False).backward()
        again(x).backward()
        torch.testing.assert_close(block.up.weight.grad.full_tensor(), again.up.weight.grad.full_tensor())

    def test_parameters_and_gradients_travel_in_the_policys_types(self):
        block = sharded_block(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32,
                                                             output_dtype=torch.float64))
        loss = block(torch.ones(3, 4))
        self.assertEqual(loss.dtype, torch.float64)
        loss.backward()
        self.assertEqual((block.up.weight.dtype, block.up.weight.grad.dtype), (torch.float32, torch.float32))

    def test_an_error_in_forward_leaves_shards_in_place(self):
        block = sharded_block()
        with self.assertRaises(RuntimeError):
            block(torch.ones(3, 5))
        self.assertTrue(all(isinstance(parameter, DTensor) for parameter in block.parameters()))
        block.unshard()
        self.assertNotIsInstance(block.up.weight, DTensor)
        block.reshard()
        self.assertIsInstance(block.up.weight, DTensor)

    def test_a_module_is_sharded_once_and_a_plan_needs_another_axis(self):
        with self.assertRaisesRegex(tg.UsageError, "fully sharded already"):
            fully_shard(sharded_block(), mesh=MESH)
        linear = nn.Linear(4, 4, bias=False)
        linear.weight = nn.Parameter(distribute_tensor(linear.weight.detach(), MESH, [Shard(0)]))
        with self.assertRaisesRegex(tg.UsageError, "different axes of one mesh"):
            fully_shard(linear, mesh=MESH)


if __name__ == "__main__":
    unittest.main()
