"""Random placements for the tensors of a test, and tensors placed so. All ranks choose the same."""
import random
from dataclasses import dataclass

import torch

# Shares that three ranks can hold of a float x: they add up to x exactly, in any order. Other ranks
# hold zeros.
SHARES = [(1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (2.0, -1.0, 0.0), (1.0, 1.0, -1.0)]


@dataclass(frozen=True)
class Choice:
    """One letter and dim per axis of the mesh: ("S", 1), ("R", 0), ("P", 0)."""
    axes: tuple
    seed: int

    def __str__(self):
        return "[" + ", ".join(kind if kind != "S" else f"S({dim})" for kind, dim in self.axes) + "]"

    def is_cut(self):
        return any(kind == "S" for kind, _ in self.axes)

    def partial_axis(self):
        return next((i for i, (kind, _) in enumerate(self.axes) if kind == "P"), None)


class Chooser:
    def __init__(self, axes, seed):
        self.axes = axes
        self.random = random.Random(seed)

    def choose(self, tensor):
        kinds = []
        may_owe = tensor.dtype in (torch.float32, torch.float64) and tensor.layout == torch.strided
        may_cut = tensor.layout == torch.strided
        for _ in range(self.axes):
            draw = self.random.random()
            if draw < 0.6 and tensor.ndim > 0 and may_cut:
                kinds.append(("S", self.random.randrange(tensor.ndim)))
            elif draw < 0.8 and may_owe:
                kinds.append(("P", 0))
                may_owe = False  # one axis at most
            else:
                kinds.append(("R", 0))
        return Choice(tuple(kinds), self.random.getrandbits(32))


def value_of(tensor, choice):
    """What the placed tensor is worth: a sum of parts has no negative zero."""
    return tensor if choice.partial_axis() is None else tensor + 0.0


def part_of(tensor, choice, place, places):
    """What the rank at a place of the owing axis holds."""
    generator = torch.Generator().manual_seed(choice.seed)
    row = torch.randint(len(SHARES), tensor.shape, generator=generator)
    turn = torch.randint(places, tensor.shape, generator=generator)
    used = torch.tensor(SHARES)[:, :places]
    row[used.sum(1)[row] != 1] = 0  # too few ranks for it
    magnitude = tensor.abs()
    row[~((magnitude > 1e-30) & (magnitude < 1e30))] = 0  # no room to double or halve; inf, nan
    column = (place + turn) % places
    share = torch.where(column < used.shape[1], used[row, column.clamp(max=used.shape[1] - 1)], 0.0)
    return torch.where(share == 0, torch.zeros_like(tensor), tensor * share.to(tensor.dtype))


class Distributed:
    """Tensors as Tegula's, on a mesh over all ranks."""

    def __init__(self, shape, timeout):
        import tegula
        self.tg = tegula
        self.shape = shape
        self.timeout = timeout
        self.renew()

    def renew(self):
        """A new world, after the old one broke."""
        self.tg.init(timeout=self.timeout)
        self.mesh = self.tg.init_device_mesh("cpu", self.shape)

    def place(self, tensor, choice):
        tg = self.tg
        kinds = {"R": lambda dim: tg.Replicate(), "S": tg.Shard, "P": lambda dim: tg.Partial("sum")}
        placements = [kinds[kind](dim) for kind, dim in choice.axes]
        value = tensor.detach()
        owing = choice.partial_axis()
        if owing is None:
            placed = tg.distribute_tensor(value, self.mesh, placements, src_data_rank=None)
        else:
            part = part_of(value, choice, self.mesh.coordinate[owing], self.shape[owing])
            settled = placements[:owing] + [tg.Replicate()] + placements[owing + 1:]
            local = tg.to_local(tg.distribute_tensor(part, self.mesh, settled, src_data_rank=None))
            placed = tg.from_local(local, self.mesh, placements, shape=value.shape, stride=value.stride())
        return placed.requires_grad_(tensor.requires_grad)

    def is_placed(self, tensor):
        return self.tg.is_dtensor(tensor)

    def is_cut(self, tensor):
        return self.is_placed(tensor) and any(isinstance(p, self.tg.Shard) for p in self.tg.placements(tensor))

    def whole(self, tensor):
        return self.tg.full_tensor(tensor) if self.tg.is_dtensor(tensor) else tensor

    def works(self):
        """Whether the ranks still hear each other."""
        try:
            ones = self.tg.ones((self.mesh.size(),), self.mesh, [self.tg.Shard(0)] * self.mesh.ndim)
            return bool((self.tg.full_tensor(ones) == 1).all())
        except RuntimeError:
            return False

    def is_refusal(self, error):
        # torch's own code may draw a plain tensor, another one on each rank: that is told on all of them
        return isinstance(error, self.tg.UsageError) or "ranks have different values" in str(error)

    def is_comm_error(self, error):
        return isinstance(error, self.tg.CommError) and not self.is_refusal(error)


class Plain:
    """Tensors as they are: what a test of the tests runs on."""

    def renew(self):
        pass

    def place(self, tensor, choice):
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    def is_placed(self, tensor):
        return True

    def is_cut(self, tensor):
        return False

    def whole(self, tensor):
        return tensor

    def works(self):
        return True

    def is_refusal(self, error):
        return False

    def is_comm_error(self, error):
        return False
