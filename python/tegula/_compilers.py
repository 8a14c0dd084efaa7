"""torch.compile and torch.export on distributed tensors.

They follow a program by tensors without data, made of its tensors, and know nothing of tiles and other ranks. So they
are told, where these are made, that a distributed tensor has none: torch.compile then leaves the code that meets one
as it is, which works, and where all of it must be compiled (fullgraph, torch.export) it is refused.
"""

import functools
import warnings

from torch._subclasses.meta_utils import MetaTensorDescriber

from . import _tegula

_plain_describe = MetaTensorDescriber.describe_tensor


@functools.cache
def _refusal():
    """Dynamo's word for what it has to leave as it is, and a UsageError; dynamo is loaded when it is first needed."""
    from torch._dynamo.exc import Unsupported

    class NotCompiled(Unsupported, _tegula.UsageError):
        pass

    return NotCompiled


def refuse(tensor):
    """Leaves code that meets, or makes, such a distributed tensor as it is; it is refused where it must be compiled."""
    warnings.warn("tegula: torch.compile leaves code that meets distributed tensors as it is: it runs, nothing is compiled",
                  stacklevel=3)
    raise _refusal()("tegula: a distributed tensor cannot be compiled or exported\n"
                     f"  tensor  {tensor}\n"
                     "  hint    call the function as it is, or compile what works on tiles: tegula.local_map")


@functools.wraps(_plain_describe)
def _describe(self, t, *args, **kwargs):
    if not _tegula.is_dtensor(t):
        return _plain_describe(self, t, *args, **kwargs)
    refuse(_tegula.spec(t))


MetaTensorDescriber.describe_tensor = _describe  # type: ignore[method-assign]
