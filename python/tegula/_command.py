"""The command `tegula` of a wheel: the program that rides along."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tegula")
    os.execv(program, [program, *sys.argv[1:]])
