"""An extension in C++ and the Python module in one process: operators are claimed once, and a DTensor of one is a DTensor of the other.

tegula run -n 2 python extension_test.py <libextension.so> <which is loaded first: extension or module>
"""
import sys
import unittest

import torch

LIBRARY, FIRST = sys.argv.pop(1), sys.argv.pop(1)
if FIRST == "extension":
    torch.ops.load_library(LIBRARY)
import tegula as tg

if FIRST == "module":
    torch.ops.load_library(LIBRARY)

tg.init()
MESH = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))
WHOLE = torch.arange(12.0).reshape(4, 3)


class Extension(unittest.TestCase):
    def test_one_tegula_is_loaded(self):
        with open("/proc/self/maps", encoding="utf-8") as maps:
            loaded = {line.split()[-1] for line in maps if "/libtegula." in line}
        self.assertEqual(len(loaded), 1, loaded)

    def test_the_extension_knows_a_tensor_of_the_module(self):
        x = tg.distribute_tensor(WHOLE, MESH, [tg.Shard(0)])
        self.assertEqual(torch.ops.tegula_extension.spec_text(x), f"f32[4, 3] on (tp={tg.size()}) as [S(0)]")

    def test_the_module_knows_a_tensor_of_the_extension(self):
        x = torch.ops.tegula_extension.replicated(tg.distribute_tensor(WHOLE, MESH, [tg.Shard(1)]))
        self.assertTrue(tg.is_dtensor(x))
        torch.testing.assert_close(tg.to_local(x), WHOLE)

    def test_an_operator_of_the_extension_runs_on_tiles(self):
        x = tg.distribute_tensor(WHOLE, MESH, [tg.Shard(0)])
        torch.testing.assert_close(tg.full_tensor(torch.ops.tegula_extension.doubled(x)), 2 * WHOLE)

    def test_an_operator_of_ones_own_gets_a_rule(self):
        torch.library.define("mine::tripled", "(Tensor x) -> Tensor")
        torch.library.impl("mine::tripled", "CPU", lambda x: 3 * x)
        tg.register_sharding(torch.ops.mine.tripled.default, "... -> ...")
        x = tg.distribute_tensor(WHOLE, MESH, [tg.Shard(1)])
        y = torch.ops.mine.tripled(x)
        self.assertEqual(list(tg.placements(y)), [tg.Shard(1)])
        torch.testing.assert_close(tg.full_tensor(y), 3 * WHOLE)
        with self.assertRaisesRegex(tg.UsageError, "a rule says -> between operands and results"):
            tg.register_sharding("mine::tripled", "mk")
        with self.assertRaisesRegex(tg.UsageError, "libtorch composes it of others"):
            tg.register_sharding(torch.ops.tegula_extension.doubled.default, "... -> ...")


if __name__ == "__main__":
    unittest.main(verbosity=1)
