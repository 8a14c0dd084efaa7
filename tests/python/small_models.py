"""Small models of Hugging Face's transformers, each with the arguments of one call. The same on every rank.

A model stands for its kind: it has every layer of the large ones (grouped queries, tied embeddings, experts,
convolutions, scans, cross attention), in sizes that neither 2 nor 3 ranks divide everywhere.
"""
import torch
import transformers

WORDS, HIDDEN = 66, 24
DECODER = {"vocab_size": WORDS, "hidden_size": HIDDEN, "intermediate_size": 36, "num_hidden_layers": 2,
           "num_attention_heads": 6, "num_key_value_heads": 3, "max_position_embeddings": 32, "pad_token_id": 0,
           "bos_token_id": 1, "eos_token_id": 2}
ENCODER = {"vocab_size": WORDS, "hidden_size": HIDDEN, "intermediate_size": 36, "num_hidden_layers": 2,
           "num_attention_heads": 6, "max_position_embeddings": 32, "pad_token_id": 0}
IMAGES = {"hidden_size": HIDDEN, "intermediate_size": 36, "num_hidden_layers": 2, "num_attention_heads": 6,
          "image_size": 8, "patch_size": 4}


def words(seed=1, rows=2, length=7):
    return torch.randint(3, WORDS - 3, (rows, length), generator=torch.Generator().manual_seed(seed))


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def text():
    return {"input_ids": words(), "labels": words()}


def _made(name, config, inputs, **options):
    kind = name.partition("For")[0].partition("Model")[0].partition("LMHead")[0].partition("WithProjection")[0]
    options = getattr(transformers, f"{kind}Config")(**config, **options)
    torch.manual_seed(0)
    return getattr(transformers, name)(options).eval(), inputs


def _encoder_decoder():
    sizes = {"vocab_size": WORDS, "d_model": HIDDEN, "d_kv": 4, "d_ff": 36, "num_layers": 2, "num_heads": 6}
    return _made("T5ForConditionalGeneration", sizes, text(), decoder_start_token_id=0)


def _two_towers():
    towers = {"text_config": {**ENCODER, "bos_token_id": 1, "eos_token_id": 2}, "vision_config": IMAGES}
    inputs = {"input_ids": words(), "pixel_values": numbers(2, 3, 8, 8), "return_loss": True}
    return _made("CLIPModel", towers, inputs, projection_dim=12)


def _speech():
    sizes = {"vocab_size": WORDS, "d_model": HIDDEN, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 6,
             "decoder_attention_heads": 6, "encoder_ffn_dim": 36, "decoder_ffn_dim": 36, "num_mel_bins": 8,
             "max_source_positions": 10, "max_target_positions": 16}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None,
            "begin_suppress_tokens": None}
    inputs = {"input_features": numbers(2, 8, 20), "labels": words()}
    return _made("WhisperForConditionalGeneration", sizes, inputs, **ends)


MODELS = {
    "gpt2": lambda: _made("GPT2LMHeadModel", {"vocab_size": WORDS, "n_embd": HIDDEN, "n_layer": 2, "n_head": 6,
                                              "n_positions": 32}, text()),
    "llama": lambda: _made("LlamaForCausalLM", DECODER, text()),
    "mistral": lambda: _made("MistralForCausalLM", DECODER, text(), sliding_window=4),
    "qwen3": lambda: _made("Qwen3ForCausalLM", DECODER, text(), head_dim=4),
    "gemma2": lambda: _made("Gemma2ForCausalLM", DECODER, text(), head_dim=4, query_pre_attn_scalar=4, sliding_window=4),
    "opt": lambda: _made("OPTForCausalLM", {"vocab_size": WORDS, "hidden_size": HIDDEN, "ffn_dim": 36,
                                            "num_hidden_layers": 2, "num_attention_heads": 6, "word_embed_proj_dim": 18,
                                            "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1,
                                            "eos_token_id": 2}, text()),
    "bert": lambda: _made("BertForMaskedLM", ENCODER, text()),
    "roberta": lambda: _made("RobertaForMaskedLM", ENCODER, text()),
    "distilbert": lambda: _made("DistilBertForMaskedLM", {"vocab_size": WORDS, "dim": HIDDEN, "hidden_dim": 36,
                                                          "n_layers": 2, "n_heads": 6, "max_position_embeddings": 32}, text()),
    "t5": _encoder_decoder,
    "vit": lambda: _made("ViTForImageClassification", IMAGES, {"pixel_values": numbers(2, 3, 8, 8),
                                                               "labels": torch.tensor([0, 1])}),
    "clip": _two_towers,
    "mamba": lambda: _made("MambaForCausalLM", {"vocab_size": WORDS, "hidden_size": HIDDEN, "state_size": 4,
                                                "num_hidden_layers": 2, "time_step_rank": 3}, text()),
    "whisper": _speech,
    "resnet": lambda: _made("ResNetForImageClassification",
                            {"embedding_size": 6, "hidden_sizes": [6, 10], "depths": [1, 2], "num_channels": 3},
                            {"pixel_values": numbers(2, 3, 16, 16), "labels": torch.tensor([0, 1])}),
    "mixtral": lambda: _made("MixtralForCausalLM", DECODER, text(), num_local_experts=4),
}


def make(name):
    """(the model, the keyword arguments of a call)"""
    return MODELS[name]()
