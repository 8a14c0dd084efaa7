"""The program that counts coverage says of a few overloads what is so. Argument: the command that starts ranks."""
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

from aten_calls import as_bytes
from aten_samples import all_samples

TEGULA = sys.argv.pop()
HERE = os.path.dirname(os.path.abspath(__file__))


def counted(*names):
    """What it prints of these."""
    samples = all_samples()
    with tempfile.NamedTemporaryFile() as calls:
        pickle.dump({name: as_bytes([(samples[name], None)]) for name in names}, calls)
        calls.flush()
        return subprocess.run([sys.executable, os.path.join(HERE, "coverage.py"), "--calls", calls.name, "--tegula", TEGULA,
                               "--names"], stdout=subprocess.PIPE, text=True, check=False).stdout


class Coverage(unittest.TestCase):
    def test_what_is_covered_and_what_gathers(self):
        text = counted("aten.isin.Tensor_Scalar", "aten.movedim.int", "aten.nuclear_norm.default")
        self.assertRegex(text, "gathers +aten.nuclear_norm.default\n +a matrix is cut")
        self.assertRegex(text, "rule +aten.isin.Tensor_Scalar")
        self.assertRegex(text, "composite +aten.movedim.int")
        self.assertIn("all: 2 of 3 overloads covered", text)
        self.assertIn("1 gathers", text)


if __name__ == "__main__":
    unittest.main()
