"""Files beside Python's safetensors: what it writes is read here, and the other way round.

Usage: files_test.py <folder of programs>
"""
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import torch

try:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError:  # it has no wheel for this Python
    sys.exit(77)

PROGRAMS = sys.argv.pop(1)
# those that torch has of the format's 22
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
          torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
          torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu]


def run(*words, ranks=None):
    """What the program prints; without a launcher unless there are ranks."""
    launcher = [f"{PROGRAMS}/tegula", "run", "-n", str(ranks)] if ranks else []
    command = [*launcher, f"{PROGRAMS}/files", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def random_bits(dtype, *shape):
    """Any bits; bools are 0 or 1."""
    size = torch.tensor([], dtype=dtype).element_size()
    count = torch.Size(shape).numel() * size
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), dtype=torch.uint8)
    return bits.view(dtype).reshape(shape)


def bits_of(tensor):
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def assert_same(self, a, b):
        self.assertEqual(sorted(a), sorted(b))
        for name, tensor in a.items():
            self.assertEqual((tensor.dtype, tensor.shape), (b[name].dtype, b[name].shape), name)
            self.assertEqual(bits_of(tensor), bits_of(b[name]), name)

    def test_what_python_writes_is_read_and_written_back(self):
        tensors = {}
        for dtype in DTYPES:
            for shape in [(3, 5), (0, 4), ()]:
                tensors[f"{dtype}.{shape}"] = random_bits(dtype, *shape)
        before, after = f"{self.folder}/before.safetensors", f"{self.folder}/after.safetensors"
        save_file(tensors, before, metadata={"format": "pt", "note": "ein Gruß"})
        self.assertEqual(run("copy", before, after), "")
        self.assert_same(load_file(after), tensors)
        with safe_open(after, framework="pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt", "note": "ein Gruß"})

    def test_elements_that_torch_lacks_are_refused_one_by_one(self):
        header = {"x": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]},
                  "y": {"dtype": "U8", "shape": [3], "data_offsets": [2, 5]}}  # not aligned
        text = json.dumps(header).encode()
        before, after = f"{self.folder}/before.safetensors", f"{self.folder}/after.safetensors"
        with open(before, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + b"\1\2\3\4\5")
        self.assertEqual(run("copy", before, after), "x: libtorch has no element type F4\n")
        self.assert_same(load_file(after), {"y": torch.tensor([3, 4, 5], dtype=torch.uint8)})

    def test_weights_that_no_rank_can_hold_are_read_into_tiles(self):
        rows, columns = 1024, 4096
        size = rows * columns * 4
        header = {f"x{k}": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [k * size, (k + 1) * size]}
                  for k in range(20)}
        text = json.dumps(header).encode()
        with open(f"{self.folder}/model.safetensors", "wb") as file:  # zeros, but for the last element of each
            file.write(struct.pack("<Q", len(text)) + text)
            for k in range(20):
                file.seek(8 + len(text) + (k + 1) * size - 4)
                file.write(struct.pack("<f", k + 1))
        self.assertEqual(run("load_hf", self.folder, ranks=4), "[0] sum 210, under a limit\n")

    def test_python_reads_a_checkpoint_whoever_wrote_it(self):
        contents = []
        for ranks in (1, 3):
            folder = f"{self.folder}/{ranks}"
            run("save", folder, ranks=ranks)
            paths = sorted(glob.glob(f"{folder}/step-1/*.safetensors"))
            self.assertGreater(len(paths), 1)
            tensors = {}
            for path in paths:
                tensors.update(load_file(path))
            self.assertEqual(len(tensors), 17)
            numbers = torch.arange(35).reshape(5, 7)
            for name, tensor in tensors.items():
                if tensor.dim() == 2 and tensor.numel():
                    self.assertTrue(torch.equal(tensor, numbers.to(tensor.dtype)), name)
            self.assertEqual(tensors["none"].shape, (0, 3))
            self.assertEqual(tensors["one"].item(), 3.5)
            contents.append({os.path.basename(path): bytes_of(path) for path in glob.glob(f"{folder}/step-1/*")})
        self.assertEqual(contents[0], contents[1])


if __name__ == "__main__":
    unittest.main()
