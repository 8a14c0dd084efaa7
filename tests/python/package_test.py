"""The package as such: built for one torch, quick to import, and without effect on what it is not about."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tegula

PACKAGE = pathlib.Path(tegula.__file__).parent


def python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})


class Package(unittest.TestCase):
    def test_another_torch_than_it_was_built_for_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "tegula"
            copy.mkdir()
            for path in PACKAGE.iterdir():
                (copy / path.name).symlink_to(path.resolve())
            (copy / "_built_for.py").unlink()
            (copy / "_built_for.py").write_text('TORCH = "2.5.1"\n')
            done = python("import tegula", PYTHONPATH=folder)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "ImportError: tegula was built for torch 2.5.1, and this is torch")

    def test_importing_it_leaves_torch_distributed_alone(self):
        done = python("import tegula, sys; assert 'torch.distributed.tensor' not in sys.modules\n"
                      "import tegula.dtensor; from torch.distributed.tensor import DTensor\n"
                      "assert DTensor is not tegula.dtensor.DTensor and DTensor.__module__.startswith('torch')")
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 0)

    def test_all_names_that_it_lists_are_there(self):
        for name in tegula.__all__:
            self.assertTrue(hasattr(tegula, name), name)

    def test_a_program_is_named_on_the_command_line(self):
        done = subprocess.run([sys.executable, "-m", "tegula"], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("usage: python -m tegula program.py", done.stderr)


if __name__ == "__main__":
    unittest.main()
