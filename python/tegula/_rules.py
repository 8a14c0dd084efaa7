"""Rules and decompositions of your own."""

from . import _tegula


def register_sharding(op, rule):
    """How an operator of yours is carried out on distributed tensors: which dims belong together.

        tg.register_sharding("my::op", "mk * kn -> mn")       # or torch.ops.my.op.default

    Equal letters are cut alike, what results lack is summed over; docs/rules.md says what a rule may be. All
    ranks register the same. A rule is believed: prove it with verify_rule (C++, tegula/testing.h).
    """
    _tegula.register_sharding(op if isinstance(op, str) else op.name(), rule)


def register_decomposition(op, function):
    """What an operator of yours is made of, on distributed tensors: other operators.

        tg.register_decomposition("my::softmax", lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True))

    The function gets the operator's arguments in the order of its signature and gives its results. Below
    autograd: the operator's own gradient stays. All ranks register the same; it stays registered.
    """
    _tegula.register_decomposition(op if isinstance(op, str) else op.name(), function)
