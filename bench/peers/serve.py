"""transformers by its own tensor parallel on two ranks under torchrun, doing the work of the group "serve" under the
same case names, on the folder that TEGULA_BENCH_MODEL names."""
import os
import statistics
import subprocess
import sys
import time

RANKS, RUNS, PROMPT, NEW = 2, 3, 16, 65


def be_rank(folder, batch):
    """Prints the ids of a batch as they come, a line per id of all texts."""
    import torch
    from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

    class Printer(StoppingCriteria):
        def __call__(self, input_ids, scores, **_):
            if torch.distributed.get_rank() == 0:
                print("ids", *input_ids[:, -1].tolist(), flush=True)
            return torch.zeros(len(input_ids), dtype=torch.bool)

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto").eval()
    texts = torch.tensor([[1 + 1000 * text + 7 * place for place in range(PROMPT)] for text in range(batch)])
    with torch.inference_mode():
        model.generate(texts, attention_mask=torch.ones_like(texts), max_new_tokens=NEW, do_sample=False,
                       stopping_criteria=StoppingCriteriaList([Printer()]))
    torch.distributed.destroy_process_group()


def measured(folder, batch):
    """Milliseconds to the first id and from one to the next, and the sum of the first ids."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", "0",
               "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", __file__, folder, str(batch)]
    begin = time.perf_counter()
    times, ids = [], 0
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True) as ranks:
        for line in ranks.stdout:
            if line.startswith("ids "):
                times.append((time.perf_counter() - begin) * 1e3)
                if len(times) <= 4:
                    ids += sum(map(int, line.split()[1:]))
    if ranks.returncode != 0 or len(times) != NEW:
        sys.exit("the ranks of transformers failed")
    return times[0], (times[-1] - times[0]) / (NEW - 1), ids


def main():
    import ranks as peers

    folder = os.environ["TEGULA_BENCH_MODEL"]
    for batch in (1, 8):
        firsts, nexts, ids = zip(*[measured(folder, batch) for _ in range(RUNS)])
        name = f"batch {batch} 2 ranks"
        peers.record("serve", f"first id {name}", "transformers", statistics.median(firsts), "ms")
        peers.record("serve", f"next id {name}", "transformers", statistics.median(nexts), "ms")
        peers.record("serve", f"ids {name}", "transformers", statistics.median(ids), "checksum")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        be_rank(sys.argv[1], int(sys.argv[2]))
    else:
        main()
