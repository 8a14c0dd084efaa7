"""PyTorch's own distributed tensors on the same samples, to be counted in the same terms."""
import datetime
import hashlib
import os
import tempfile

import torch

from placing import part_of

REFUSALS = ("does not have a sharding strategy", "got mixed torch.Tensor and DTensor", "not supported",
            "not implemented")


class PyTorch:
    """Tensors as torch.distributed.tensor's, over gloo; has the functions of placing.Distributed."""

    def __init__(self, shape, timeout):
        import torch.distributed as dist
        import torch.distributed.tensor as dtensor
        from torch.distributed.device_mesh import init_device_mesh
        self.dtensor = dtensor
        self.shape = shape
        rank, size = int(os.environ.get("TEGULA_RANK", 0)), int(os.environ.get("TEGULA_WORLD_SIZE", 1))
        job = hashlib.sha256(os.environ.get("TEGULA_JOB", str(os.getpid())).encode()).hexdigest()[:16]
        store = os.path.join(tempfile.gettempdir(), f"torch-store-{os.getuid()}-{job}")
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size,
                                timeout=datetime.timedelta(seconds=timeout))
        self.mesh = init_device_mesh("cpu", shape)

    def renew(self):
        raise RuntimeError("PyTorch has no new world in the same process")

    def place(self, tensor, choice):
        kinds = {"R": lambda dim: self.dtensor.Replicate(), "S": self.dtensor.Shard,
                 "P": lambda dim: self.dtensor.Partial("sum")}
        placements = [kinds[kind](dim) for kind, dim in choice.axes]
        value = tensor.detach()
        owing = choice.partial_axis()
        if owing is None:
            placed = self.dtensor.distribute_tensor(value, self.mesh, placements, src_data_rank=None)
        else:
            part = part_of(value, choice, self.mesh.get_coordinate()[owing], self.shape[owing])
            settled = placements[:owing] + [self.dtensor.Replicate()] + placements[owing + 1:]
            local = self.dtensor.distribute_tensor(part, self.mesh, settled, src_data_rank=None).to_local()
            placed = self.dtensor.DTensor.from_local(local, self.mesh, placements, run_check=False, shape=value.shape,
                                                     stride=value.stride())
        return placed.detach().requires_grad_(tensor.requires_grad)

    def is_placed(self, tensor):
        return isinstance(tensor, self.dtensor.DTensor)

    def is_cut(self, tensor):
        return self.is_placed(tensor) and any(p.is_shard() for p in tensor.placements)

    def whole(self, tensor):
        return tensor.full_tensor() if self.is_placed(tensor) else tensor

    def works(self):
        """Whether the ranks still hear each other."""
        try:
            cut = [self.dtensor.Shard(0)] * self.mesh.ndim
            ones = self.dtensor.ones(self.mesh.size(), device_mesh=self.mesh, placements=cut)
            return bool((ones.full_tensor() == 1).all())
        except RuntimeError:
            return False

    def is_refusal(self, error):
        return isinstance(error, NotImplementedError) or any(words in str(error) for words in REFUSALS)

    def is_comm_error(self, error):
        return "gloo" in str(error).lower() or isinstance(error, torch.distributed.DistBackendError)
