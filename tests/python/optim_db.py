"""Runs torch's own optimizer samples on distributed parameters and compares with plain ones.

    tegula run -n 3 python optim_db.py [--only Adam,SGD] [--samples 0] [--mesh 2x2]

Every optimizer takes some steps with each of the options that torch's tests give it, as a loop over parameters,
and where it has these: foreach, fused, and differentiable. Parameters and gradients get random placements (cut,
replicated, or owing a sum), the same on all ranks. Parameters, the optimizer's state, and where the step is
differentiable the gradients through it, must be those of the plain optimizer. suite.py says what may come of a
sample; refused_optimizers.txt names what is refused.
"""
import copy
import os
import sys

from suite import Suite, parser_of, run

import torch
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_map

from trial import Trial

STEPS = 3
SHAPES = [(10, 5), (7,), (2, 3, 4), (2,), ()]
MATRICES = [(10, 5), (3, 8)]
MATRICES_ONLY = {"Muon", "SparseAdam"}


class Steps:
    """Some steps of an optimizer, as a function of the parameters and of the gradients of each step."""

    def __init__(self, info, options):
        self.info, self.options = info, options
        self.name = info.name
        self.precision = torch.bfloat16 if info.name == "Muon" else None  # that it works in, whatever is given

    def __call__(self, parameters, *gradients):
        is_differentiable = self.options.get("differentiable", False)
        if is_differentiable:
            parameters = [p.clone() for p in parameters]  # the steps write to them, which leaves do not allow
        optimizer = self.info.optim_cls(parameters, **copy.deepcopy(self.options))
        for step in gradients:
            if self.info.step_requires_closure:
                optimizer.step(lambda: backward(optimizer, parameters, step))
            else:
                for parameter, gradient in zip(parameters, step, strict=True):
                    parameter.grad = gradient
                optimizer.step()
        results = parameters, [optimizer.state[p] for p in parameters]
        return results if is_differentiable else detached(results)


def backward(optimizer, parameters, centres):
    """A loss that the optimizer may ask for at any parameters, with its gradients: not flat, and not round."""
    optimizer.zero_grad()
    loss = sum(((1 + 9 * c.square()) * (p - c).square()).sum() for p, c in zip(parameters, centres, strict=True))
    loss.backward()
    return loss.detach()


def detached(tree):
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, tree)


def variants(info, options):
    """The options for the loop over parameters, then for each other way that the optimizer has on the CPU."""
    ways = [way for way in info.supported_impls if way != "fused" or "cpu" in info.supports_fused_on]
    yield {**options, **dict.fromkeys(ways, False)}
    for chosen in ways:
        yield {**options, **{way: way == chosen for way in ways}}


class Optimizers(Suite):
    """Torch's optimizers with the options of its own tests."""
    noun = "optimizer"
    refused = os.path.join(os.path.dirname(os.path.abspath(__file__)), "refused_optimizers.txt")

    def samples(self, info):
        return self.spread([options for sample in info.optim_inputs_func(device="cpu")
                            for options in variants(info, sample.kwargs)])

    def cases(self):
        from torch.testing._internal.common_optimizers import optim_db
        for info in optim_db:
            if not self.is_wanted(info.name):
                continue
            seed = self.seed(info.name)
            for number, options in self.samples(info):
                def make_trial():
                    torch.manual_seed(seed + number)
                    return Trial(Steps(info, options), "function", sample_for(info, options), self.tensors,
                                 self.chooser(seed + number), self.own_draws)

                yield info.name, number, make_trial


def sample_for(info, options):
    """Parameters, and gradients of every step."""
    shapes = MATRICES if info.name in MATRICES_ONLY else SHAPES
    is_differentiable = options.get("differentiable", False)
    # A line search may end elsewhere for the last bit of a float; derivatives of g / sqrt(g * g) are that bit.
    dtype = torch.float64 if info.step_requires_closure or is_differentiable else torch.float32

    def gradient(shape):
        made = torch.randn(shape, dtype=dtype)
        if info.only_supports_sparse_grads:
            return made.to_sparse()
        return made.requires_grad_(is_differentiable)

    parameters = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    # Torch differentiates through one step only; a step with a closure is twenty small ones.
    steps = 1 if is_differentiable else 2 if info.step_requires_closure else STEPS
    return SampleInput(parameters, args=tuple([gradient(shape) for shape in shapes] for _ in range(steps)))


if __name__ == "__main__":
    run(Optimizers, parser_of(Optimizers).parse_args(sys.argv[1:]))
