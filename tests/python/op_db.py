"""Runs torch's own operator samples on distributed tensors and compares with the plain operator.

    tegula run -n 2 python op_db.py [--only add,nn.functional.conv2d] [--samples 4] [--json FILE]

Every operator that takes float32 on the CPU is called with samples that torch's tests use. Each
tensor argument gets a random placement (cut, replicated, or owing a sum), the same on all ranks.
The whole of every output, and the gradients of all floating inputs under random cotangents, must be
those of the plain operator. suite.py says what may come of a sample; refused_ops.txt names what is refused.

With --who torch the same samples, placed alike, go through PyTorch's DTensor. It may hang or crash; started
without a launcher, this program starts its two ranks again behind that, until no sample is left.
"""
import itertools
import os
import subprocess
import sys
import tempfile

from suite import Suite, parser_of, run

import torch

from report import Report
from trial import Trial, has_form

# The first so many samples of an operator are the ones to choose from.
SAMPLES_SEEN = 60


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


class Operators(Suite):
    """Torch's operators on their own samples."""
    noun = "operator"
    refused = os.path.join(os.path.dirname(os.path.abspath(__file__)), "refused_ops.txt")

    def ops(self):
        from torch.testing._internal import common_methods_invocations as torch_samples
        # It would seed torch's generator before each call of a random operator: no two runs would differ.
        torch_samples.wrapper_set_seed = lambda op, *rest, **named: op(*rest, **named)
        for op in torch_samples.op_db:
            if torch.float32 in op.supported_dtypes("cpu") and self.is_wanted(op.name, full_name(op)):
                yield op

    def samples(self, op):
        differentiable = op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
        found = op.sample_inputs("cpu", torch.float32, requires_grad=differentiable)
        return self.spread(list(itertools.islice(found, SAMPLES_SEEN)))

    def cases(self):
        for op in self.ops():
            seed = self.seed(full_name(op))
            try:
                samples = self.samples(op)
            except Exception as error:  # noqa: BLE001 torch's sample generators may need what is not there
                print(f"no samples of {full_name(op)}: {error}", file=sys.stderr)
                continue
            for form, (number, sample) in itertools.product(self.options.forms.split(","), samples):
                if has_form(op, form, sample):
                    name = full_name(op) + {"function": "", "inplace": " in place", "out": " out="}[form]
                    yield name, number, lambda: Trial(op, form, sample, self.tensors, self.chooser(seed + number),
                                                      self.own_draws)


def parse(arguments):
    parser = parser_of(Operators)
    parser.add_argument("--forms", default="function", help="of function,inplace,out")
    parser.add_argument("--tegula", default="tegula", help="the command that starts ranks")
    return parser.parse_args(arguments)


def lines_in(path):
    if not os.path.exists(path):
        return 0
    with open(path, encoding="utf-8") as lines:
        return sum(1 for _ in lines)


def drive(options, arguments):
    """Starts two ranks, and again as long as they get further; then reports."""
    results = options.json or os.path.join(tempfile.mkdtemp(prefix="tegula-op-db-"), "results")
    command = [options.tegula, "run", "-n", "2", sys.executable, __file__, *arguments, "--json", results, "--resume"]
    before = None
    while before != (now := lines_in(results)):
        before = now
        subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    Report(Operators.noun, results, resume=True).print(options.list_refused, options.slow)
    return 0


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    if options.who == "torch" and "TEGULA_RANK" not in os.environ:
        sys.exit(drive(options, sys.argv[1:]))
    run(Operators, options)
