"""Small models of Hugging Face's transformers by their own plans, beside themselves on one rank. Any number of ranks.

Ends with code 77 where transformers is not installed.
"""
import copy
import sys
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


def model_of(kind, **more):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SMALL, **more)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def words():
    return torch.randint(3, 60, (2, 7), generator=torch.Generator().manual_seed(1))


class Models(unittest.TestCase):
    def check(self, model):
        plain = copy.deepcopy(model)
        report = tegula.hf.parallelize(model, MESH, prove={"input_ids": words(), "labels": words()})
        self.assertTrue(all(tg.is_dtensor(p) for p in model.parameters()))
        self.assertIn("[S(0)]", str(report))
        with torch.no_grad():
            for_all = model.generate(words(), max_new_tokens=5, do_sample=False)
            self.assertFalse(tg.is_dtensor(model(words()).logits))
        self.assertEqual(for_all.tolist(), plain.generate(words(), max_new_tokens=5, do_sample=False).tolist())
        return report

    def test_llama(self):
        self.assertEqual(self.check(model_of("Llama")).unmatched, [])

    def test_qwen3_with_norms_of_heads(self):
        self.check(model_of("Qwen3", head_dim=8))

    def test_gemma2_with_tied_embeddings(self):
        self.check(model_of("Gemma2", head_dim=8))

    def test_phi3_with_packed_layers(self):
        self.check(model_of("Phi3"))

    def test_mixtral_with_experts(self):
        self.check(model_of("Mixtral", num_local_experts=4))


class Plans(unittest.TestCase):
    def test_a_model_without_a_plan_is_refused(self):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=66, n_embd=32, n_layer=1, n_head=4))
        with self.assertRaisesRegex(tg.UsageError, "brings no plan along"):
            tegula.hf.parallelize(model, MESH)
        self.assertFalse(any(tg.is_dtensor(p) for p in model.parameters()))

    def test_unknown_styles_are_named(self):
        with self.assertRaisesRegex(tg.UsageError, "(?s)not known.*diagonal.*colwise_gather_output"):
            tegula.hf.parallelize(model_of("Llama"), MESH, plan={"lm_head": "diagonal"})

    def test_patterns_without_a_layer_are_reported(self):
        report = tegula.hf.parallelize(model_of("Llama"), MESH, plan={"lm_head": "colwise_rep", "vision.*": "rowwise"})
        self.assertEqual(report.unmatched, ["vision.*"])

    def test_a_proof_finds_other_numbers(self):
        with self.assertRaisesRegex(tg.UsageError, "(?s)other numbers than on one rank.*logits"):
            tegula.hf._compare({"logits": torch.ones(2)}, {"logits": torch.zeros(2)})

    def test_every_name_of_a_style_is_known(self):
        from transformers.integrations.tensor_parallel import ALL_PARALLEL_STYLES

        self.assertEqual(set(ALL_PARALLEL_STYLES.keys()) - set(tegula.hf.styles()), set())


if __name__ == "__main__":
    unittest.main()
