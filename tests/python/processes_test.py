"""Ranks that a program makes itself, by multiprocessing; children of a rank; one rank in a notebook. No launcher."""
import asyncio
import contextlib
import io
import multiprocessing
import os
import socket
import sys
import traceback
import unittest
import warnings

import torch

import tegula as tg

RANKS = 3
warnings.filterwarnings("ignore", ".*fork.*")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rank_main(rank, port, results):
    """A rank by the variables that torchrun sets."""
    try:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(RANKS),
                          MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        tg.init(timeout=60)
        mesh = tg.init_device_mesh("cpu", (RANKS,))
        x = tg.distribute_tensor(torch.arange(6.0), mesh, [tg.Shard(0)]).requires_grad_()
        (x * x).sum().backward()
        results.put((rank, tg.to_local(x.grad).tolist(), tg.full_tensor(x.grad).tolist()))
    except BaseException:
        results.put((rank, traceback.format_exc(), None))


def child_of_a_rank(results, tensor):
    """What a forked child may do with what it inherits: look, not send."""
    try:
        results.put(tensor.sum().item())
    except tg.UsageError as error:
        results.put(str(error))


class Processes(unittest.TestCase):
    def test_ranks_are_started_by_multiprocessing(self):
        for method in ("spawn", "fork"):
            context = multiprocessing.get_context(method)
            results, port = context.Queue(), free_port()
            ranks = [context.Process(target=rank_main, args=(rank, port, results)) for rank in range(RANKS)]
            for process in ranks:
                process.start()
            found = sorted(results.get(timeout=300) for _ in ranks)
            for process in ranks:
                process.join(60)
            whole = [2.0 * i for i in range(6)]
            self.assertEqual(found, [(rank, whole[2 * rank:2 * rank + 2], whole) for rank in range(RANKS)], method)
            self.assertEqual([process.exitcode for process in ranks], [0] * RANKS)

    def test_a_forked_child_of_a_rank_is_no_rank(self):
        def body():
            mesh = tg.init_device_mesh("cpu", (tg.size(),))
            x = tg.distribute_tensor(torch.arange(6.0), mesh, [tg.Shard(0)])
            if tg.rank() == 0:
                context = multiprocessing.get_context("fork")
                results = context.Queue()
                child = context.Process(target=child_of_a_rank, args=(results, x))
                child.start()
                said = results.get(timeout=60)
                child.join(60)
            else:
                said = None
            return said, x.sum().item()  # the rank itself goes on

        (said, total), (_, other) = tg.run_ranks(2, body, timeout=60)
        self.assertIn("tegula: ", str(said))
        self.assertEqual((total, other), (15.0, 15.0))


class Notebook(unittest.TestCase):
    CELLS = (
        "import torch, tegula as tg",
        "tg.init()",
        "mesh = tg.init_device_mesh('cpu', (1,))",
        "x = tg.distribute_tensor(torch.arange(4.0), mesh, [tg.Shard(0)]).requires_grad_()",
        "(x * x).sum().backward()",
        "print(x.grad)",
        "tg.init(); mesh = tg.init_device_mesh('cpu', (1,))",  # a cell that is run again
        "y = tg.distribute_tensor(torch.ones(2), mesh); print(y + 1)",
        "print(tg.run_ranks(3, lambda: tg.group().all_reduce(torch.ones(1)).item()))",
    )

    def test_cells_run_on_one_rank_within_an_event_loop(self):
        async def kernel():
            names = {}
            for cell in self.CELLS:
                exec(compile(cell, "<cell>", "exec"), names)
                await asyncio.sleep(0)

        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            asyncio.run(kernel())
        self.assertRegex(shown.getvalue(), r"(?s) 0\n 2\n 4\n 6\n.* 2\n 2\n.*\[3\.0, 3\.0, 3\.0\]")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
