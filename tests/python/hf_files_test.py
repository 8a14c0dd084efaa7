"""Weights of Hugging Face's transformers: what it saves is read into tiles, and it opens what is exported. Any number of ranks.

Ends with code 77 where transformers is not installed.
"""
import glob
import shutil
import sys
import tempfile
import unittest

try:
    import transformers
except ImportError:
    sys.exit(77)
import torch

import tegula as tg
import tegula.hf

tg.init(timeout=120)
MESH = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))
SMALL = {"vocab_size": 66, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def model_of(kind, seed, **more):
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**SMALL, **more)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def words():
    return torch.randint(3, 60, (2, 7), generator=torch.Generator().manual_seed(1))


class Weights(unittest.TestCase):
    def setUp(self):
        made = [tempfile.mkdtemp() if tg.rank() == 0 else None]
        names = torch.zeros(200, dtype=torch.uint8)
        if tg.rank() == 0:
            names[:len(made[0])] = torch.tensor(list(made[0].encode()), dtype=torch.uint8)
        tg.group().broadcast_(names, 0)
        self.folder = bytes(names[names != 0].tolist()).decode()

    def tearDown(self):
        tg.group().barrier()
        if tg.rank() == 0:
            shutil.rmtree(self.folder)

    def check(self, kind, max_shard_size="5GB", most_file_bytes=5 << 30, **more):
        model = model_of(kind, 1, **more)
        if tg.rank() == 0:
            model.save_pretrained(f"{self.folder}/theirs", max_shard_size=max_shard_size)
        tg.group().barrier()
        other = model_of(kind, 2, **more)
        tegula.hf.parallelize(other, MESH)
        tg.load_hf(other, f"{self.folder}/theirs")
        for (name, parameter), expected in zip(other.named_parameters(), model.parameters()):
            self.assertTrue(tg.is_dtensor(parameter), name)
            self.assertTrue(torch.equal(tg.full_tensor(parameter.detach()), expected.detach()), name)
        tg.export_hf(other, f"{self.folder}/ours", most_file_bytes=most_file_bytes)
        opened = transformers.AutoModelForCausalLM.from_pretrained(f"{self.folder}/ours").eval()
        self.assertEqual(type(opened), type(model))
        with torch.no_grad():
            self.assertTrue(torch.equal(opened(words()).logits, model(words()).logits))
        return len(glob.glob(f"{self.folder}/theirs/*.safetensors")), len(glob.glob(f"{self.folder}/ours/*.safetensors"))

    def test_one_file(self):
        self.assertEqual(self.check("Llama"), (1, 1))

    def test_many_files(self):
        theirs, ours = self.check("Llama", max_shard_size="20KB", most_file_bytes=20_000)
        self.assertGreater(theirs, 3)
        self.assertGreater(ours, 3)

    def test_tied_weights_in_many_files(self):
        theirs, ours = self.check("Qwen2", max_shard_size="20KB", most_file_bytes=20_000, tie_word_embeddings=True)
        self.assertGreater(min(theirs, ours), 3)

    def test_what_does_not_fit_is_one_error(self):
        if tg.rank() == 0:
            model_of("Llama", 1).save_pretrained(f"{self.folder}/theirs")
        tg.group().barrier()
        with self.assertRaisesRegex(tg.UsageError, "(?s)do not fit the module.*missing.*q_norm.weight"):
            tg.load_hf(model_of("Qwen3", 1, head_dim=8), f"{self.folder}/theirs")


if __name__ == "__main__":
    unittest.main()
