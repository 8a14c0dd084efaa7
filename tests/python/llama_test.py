"""The llama of examples/ beside Hugging Face's transformers: the same scores and ids, on 1 to 4 ranks.

Usage: llama_test.py <folder of programs>. Ends with code 77 where transformers is not installed.
"""
import subprocess
import sys
import tempfile
import unittest

try:
    import transformers
    from safetensors.torch import load_file
except ImportError:
    sys.exit(77)
import torch

PROGRAMS = sys.argv.pop(1)
TEXTS = [[3, 14, 15, 9, 26, 5, 35, 8], [2], [7, 18, 28]]
# None of the sizes is a multiple of all numbers of ranks.
SIZES = {"vocab_size": 67, "hidden_size": 48, "intermediate_size": 50, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 3}
MODELS = {
    "llama3": ("Llama", {"head_dim": 10, "attention_bias": True, "mlp_bias": True, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}}),
    "llama-one-key": ("Llama", {"num_key_value_heads": 1, "rope_parameters": {
        "rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
    "mistral": ("Mistral", {"sliding_window": 4}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 4,
                        "max_window_layers": 1, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
}


def run(folder, *words, ranks, texts=TEXTS):
    """What the program prints, as one list of ids per text."""
    ids = [word for text in texts for word in ("--ids", ",".join(map(str, text)))]
    command = [f"{PROGRAMS}/tegula", "run", "-n", str(ranks), f"{PROGRAMS}/llama", "--model", folder, *ids, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    found = [[] for _ in texts]
    for line in done.stdout.splitlines():
        text, one = line.removeprefix("[0] ").split()
        found[int(text)].append(int(one))
    return found


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.models = {}
        for name, (kind, more) in MODELS.items():
            config = getattr(transformers, f"{kind}Config")(**{**SIZES, **more})
            model = getattr(transformers, f"{kind}ForCausalLM")(config).double().eval()
            torch.manual_seed(1)
            for key, weight in model.named_parameters():
                torch.nn.init.normal_(weight, 1.0 if "norm" in key else 0.0, 0.3)
            model.save_pretrained(cls.folder(name))
            cls.models[name] = model

    @classmethod
    def folder(cls, name):
        return f"{cls.scratch.name}/{name}"

    def scores(self, name, text, found):
        """Of the ids that were found: [found, vocabulary]."""
        with torch.no_grad():
            logits = self.models[name](torch.tensor([text + found[:-1]])).logits
        return logits[0, len(text) - 1:]

    def test_scores_and_ids_are_those_of_transformers(self):
        worst, compared = 0.0, 0
        for name in MODELS:
            for ranks in (1, 2, 3, 4):
                file = f"{self.folder(name)}/{ranks}.scores"
                found = run(self.folder(name), "--max-new", "7", "--no-stop", "--logits", file, ranks=ranks)
                ours = load_file(file)
                for number, text in enumerate(TEXTS):
                    self.assertEqual(len(found[number]), 7)
                    theirs = self.scores(name, text, found[number])
                    difference = (ours[str(number)] - theirs).abs().max().item()
                    # transformers norms and rotates in float32, also in models of float64
                    self.assertLess(difference, 1e-5, f"{name} on {ranks} ranks, text {number}")
                    worst = max(worst, difference)
                    best = theirs.topk(2)
                    for row, one in enumerate(found[number]):
                        if best.values[row, 0] - best.values[row, 1] > 1e-4:
                            self.assertEqual(one, best.indices[row, 0].item(), f"{name} on {ranks} ranks")
                            compared += 1
        self.assertGreater(compared, 0.9 * 7 * len(TEXTS) * 4 * len(MODELS))
        print(f"{compared} ids as transformers', scores differ by at most {worst:.1e}", file=sys.stderr)

    def test_a_text_in_a_batch_is_continued_as_alone(self):
        for name in ("llama3", "mistral"):
            together = run(self.folder(name), "--max-new", "9", "--no-stop", ranks=3)
            for number, text in enumerate(TEXTS):
                alone = run(self.folder(name), "--max-new", "9", "--no-stop", ranks=2, texts=[text])
                self.assertEqual(alone, [together[number]])

    def test_the_same_ids_are_drawn_on_any_number_of_ranks(self):
        how = ["--temperature", "2", "--top-k", "30", "--top-p", "0.95", "--seed", "11", "--max-new", "20", "--no-stop"]
        alone = run(self.folder("qwen3"), *how, ranks=1)
        self.assertGreater(len(set(alone[0])), 3)
        for ranks in (2, 3):
            self.assertEqual(run(self.folder("qwen3"), *how, ranks=ranks), alone)

    def test_texts_end_where_those_of_transformers_do(self):
        model = self.models["llama3"]
        free = run(self.folder("llama3"), "--max-new", "9", "--no-stop", ranks=2)
        for number, text in enumerate(TEXTS):
            stop = free[number][4]
            theirs = model.generate(torch.tensor([text]), max_new_tokens=9, do_sample=False, eos_token_id=stop)
            found = run(self.folder("llama3"), "--max-new", "9", "--stop", str(stop), ranks=2, texts=[text])
            self.assertEqual(found, [theirs[0, len(text):].tolist()])


if __name__ == "__main__":
    unittest.main()
