"""Weights of torch.save and of torch.distributed.checkpoint become safetensors files.

Usage: import_weights_test.py <root of the repository>
"""
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
import torch.distributed.checkpoint as dcp

try:
    from safetensors.torch import load_file
except ImportError:  # it has no wheel for this Python
    sys.exit(77)

PROGRAM = os.path.join(sys.argv.pop(1), "python", "tegula", "import_weights.py")
TENSORS = {"a": torch.arange(12, dtype=torch.float32).reshape(3, 4).t(), "b": {"c": torch.tensor(2.5, dtype=torch.bfloat16),
           "d": torch.zeros(0, 3, dtype=torch.int64)}, "half": torch.randn(5).half()}
NAMES = {"a": TENSORS["a"], "b.c": TENSORS["b"]["c"], "b.d": TENSORS["b"]["d"], "half": TENSORS["half"]}


class ImportWeights(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        warnings.simplefilter("ignore")

    def run_program(self, *words):
        done = subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=600, check=False)
        return done.returncode, done.stdout + done.stderr

    def assert_tensors(self, tensors, names):
        self.assertEqual(sorted(tensors), sorted(names))
        for name, tensor in names.items():
            self.assertEqual(tensors[name].dtype, tensor.dtype)
            self.assertTrue(torch.equal(tensors[name], tensor), name)

    def test_a_file_of_torch_save(self):
        torch.save({**TENSORS, "epoch": 3}, f"{self.folder}/model.pt")
        code, text = self.run_program(f"{self.folder}/model.pt", f"{self.folder}/out")
        self.assertEqual((code, text), (0, "4 tensors in 1 file\npassed over, no tensors: epoch\n"))
        self.assert_tensors(load_file(f"{self.folder}/out/model.safetensors"), NAMES)

    def test_a_pickle_of_anything_else_is_not_opened(self):
        torch.save({"x": subprocess.Popen}, f"{self.folder}/model.pt")
        code, text = self.run_program(f"{self.folder}/model.pt", f"{self.folder}/out")
        self.assertNotEqual(code, 0)
        self.assertIn("weights_only", text)

    def test_a_folder_of_distributed_checkpoint_over_several_files(self):
        dcp.save(dict(TENSORS, epoch=3), storage_writer=dcp.FileSystemWriter(f"{self.folder}/dcp"), no_dist=True)
        code, text = self.run_program(f"{self.folder}/dcp", f"{self.folder}/out", "--file-bytes", "50")
        self.assertEqual(code, 0, text)
        self.assertIn("4 tensors in 2 files", text)
        tensors = {}
        for index in (1, 2):
            tensors.update(load_file(f"{self.folder}/out/model-{index:05}-of-00002.safetensors"))
        self.assert_tensors(tensors, NAMES)
        self.assertTrue(os.path.exists(f"{self.folder}/out/model.safetensors.index.json"))


if __name__ == "__main__":
    unittest.main()
