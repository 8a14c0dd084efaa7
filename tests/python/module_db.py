"""Runs torch's own module samples on distributed tensors and compares with the plain module.

    tegula run -n 3 python module_db.py [--only nn.LSTM,nn.Conv2d] [--samples 0] [--mesh 2x2]

Every module that takes float32 is built as torch's tests build it, for training and for evaluation where these
differ. Its parameters and buffers, and the tensors that it is called with, get random placements (cut, replicated,
or owing a sum), the same on all ranks. Outputs, the gradients of inputs and parameters under random cotangents, and
buffers that were written (running statistics) must be those of the plain module. suite.py says what may come of a
sample; refused_modules.txt names what is refused.
"""
import copy
import os
import sys

from suite import Suite, parser_of, run

import torch
from torch.testing._internal.opinfo.core import SampleInput

from trial import Trial


class Call:
    """Calls its first argument, a module, with the others."""

    def __init__(self, name):
        self.name = name

    def __call__(self, module, *args, **kwargs):
        return module(*args, **kwargs)


def build(info, sample, is_training):
    """The module with the arguments of its call."""
    constructor, forward = sample.constructor_input, sample.forward_input
    module = info.module_cls(*copy.deepcopy(constructor.args), **copy.deepcopy(constructor.kwargs))
    module = module.to(torch.float32).train(is_training)
    if info.is_lazy:
        with torch.no_grad():
            module(*forward.args, **forward.kwargs)  # now its parameters have shapes
    return SampleInput(module, args=forward.args, kwargs=forward.kwargs)


class Modules(Suite):
    """Torch's modules on their own samples."""
    noun = "module"
    refused = os.path.join(os.path.dirname(os.path.abspath(__file__)), "refused_modules.txt")

    def samples(self, info):
        """(number, (sample, whether it trains))"""
        found = []
        for is_training in (True, False) if info.train_and_eval_differ else (True,):
            inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True,
                                             training=is_training)
            found += [(sample, is_training) for sample in inputs]
        return self.spread(found)

    def cases(self):
        from torch.testing._internal.common_modules import module_db
        for info in module_db:
            if not self.is_wanted(info.name):
                continue
            seed = self.seed(info.name)
            for number, (sample, is_training) in self.samples(info):
                def make_trial():
                    torch.manual_seed(seed + number)
                    return Trial(Call(info.name), "function", build(info, sample, is_training), self.tensors,
                                 self.chooser(seed + number), self.own_draws)

                yield info.name, number, make_trial


if __name__ == "__main__":
    run(Modules, parser_of(Modules).parse_args(sys.argv[1:]))
