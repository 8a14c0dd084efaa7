"""What the ranks of a test tell each other beside Tegula, so that it works when Tegula does not."""
import hashlib
import json
import mmap
import os
import tempfile
import time

SLOT = 4096  # bytes of a message, its number and length included


class Lost(Exception):
    """Another rank did not come."""


class Ranks:
    """The ranks that one launcher on this host started, as processes.

    They talk through a file in memory. A rank has two slots and uses them in turn: it can be one
    message ahead of another rank, never two.
    """

    def __init__(self):
        self.rank = int(os.environ.get("TEGULA_RANK", 0))
        self.size = int(os.environ.get("TEGULA_WORLD_SIZE", 1))
        self.number = 0
        job = hashlib.sha256(os.environ.get("TEGULA_JOB", str(os.getpid())).encode()).hexdigest()[:16]
        self.path = os.path.join(tempfile.gettempdir(), f"tegula-test-{os.getuid()}-{job}")
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, 2 * SLOT * self.size)
        self.memory = mmap.mmap(descriptor, 2 * SLOT * self.size)
        os.close(descriptor)
        self.exchange(None, seconds=60)
        if self.rank == 0:
            os.unlink(self.path)

    def exchange(self, message, seconds):
        """Every rank's message, by rank. Lost if one does not come."""
        self.number += 1
        text = json.dumps(message).encode()[:SLOT - 16]
        here = self._slot(self.rank)
        self.memory[here + 8:here + 16] = len(text).to_bytes(8, "little")
        self.memory[here + 16:here + 16 + len(text)] = text
        self.memory[here:here + 8] = self.number.to_bytes(8, "little")  # last: now it counts
        deadline = time.monotonic() + seconds
        return [self._wait_for(rank, deadline) for rank in range(self.size)]

    def _slot(self, rank):
        return (2 * rank + self.number % 2) * SLOT

    def _wait_for(self, rank, deadline):
        there = self._slot(rank)
        pause = 1e-5
        while int.from_bytes(self.memory[there:there + 8], "little") != self.number:
            if time.monotonic() > deadline:
                raise Lost(f"rank {rank} did not come")
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)
        length = int.from_bytes(self.memory[there + 8:there + 16], "little")
        return json.loads(self.memory[there + 16:there + 16 + length])
