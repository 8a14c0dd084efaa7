"""python -m tegula program.py ...: a program written for PyTorch's DTensor, on Tegula (tegula.patch)."""

import runpy
import sys

import tegula


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m tegula program.py [arguments]\n"
                 "runs a program that was written for torch.distributed.tensor with Tegula's tensors")
    sys.argv = sys.argv[1:]
    tegula.patch()
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
