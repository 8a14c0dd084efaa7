"""A program that a type checker takes; the lines that it must not take say so."""
import torch

import tegula as tg


def train(steps: int) -> list[float]:
    tg.init(timeout=60)
    mesh = tg.init_device_mesh("cpu", (1, tg.size()), mesh_dim_names=("dp", "tp"))
    model = tg.parallelize_module(torch.nn.Linear(4, 4), mesh["tp"], {"**": tg.Colwise()})
    x = tg.distribute_tensor(torch.ones(2, 4), mesh, [tg.Replicate(), tg.Replicate()])
    losses = []
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        norm: float = tg.clip_grad_norm_(model.parameters(), 1.0)
        losses.append(loss.item() + norm)
    with tg.CommLog() as log, tg.strict_mode():
        tg.full_tensor(tg.redistribute(x, placements=[tg.Shard(0), tg.Partial("max")]))
    total: int = sum(entry.bytes for entry in log.entries())
    losses.append(total)
    return losses


def resume(folder: str, state: dict[str, object]) -> int:
    step = tg.latest(folder)
    report = tg.load(folder, state) if step is not None else tg.LoadReport(0, [], [])
    with tg.AsyncSaver() as saver:
        saver.save(folder, state, step=report.step + 1, keep=3)
    return report.step


tg.save("run", ["model"])  # type: ignore[arg-type]
tg.distribute_tensor(torch.ones(2), "mesh")  # type: ignore[arg-type]
tg.Shard("0")  # type: ignore[arg-type]
tg.placements(torch.ones(2)).dim  # type: ignore[attr-defined]
tg.distribute_tensors(torch.ones(2))  # type: ignore[attr-defined]
