"""A real GGUF model of a few hundred kilobytes, with random weights, for tests that run the real engine.

It loads in well under a second, can tokenize any text (byte fallback) and generates nonsense, deterministically.
Two variants: `llama` (full attention in every layer) and `gemma3` (five sliding-window layers to one full one).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import gguf
import numpy as np

TinyArch = Literal["llama", "gemma3"]

N_EMBD = 64
N_FF = 128
N_HEAD = 2
N_HEAD_KV = 1
HEAD_SIZE = 64  # a multiple of 64: quantized K and V are rotated as in real models
SLIDING_WINDOW = 512
WORDS = (
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "it",
    "that",
    "for",
    "was",
    "on",
    "with",
    "as",
    "be",
    "at",
    "by",
)

SPECIAL = ("<unk>", "<s>", "</s>")


def vocabulary() -> tuple[list[str], list[float], list[int]]:
    """Tokens, scores and types of an SPM vocabulary: specials, all bytes, printable ASCII, some words."""
    tokens, scores, types = list(SPECIAL), [0.0, 0.0, 0.0], [2, 3, 3]
    for byte in range(256):
        tokens.append(f"<0x{byte:02X}>")
        scores.append(0.0)
        types.append(6)
    pieces = ["\u2581", *(chr(c) for c in range(33, 127))]
    for word in WORDS:
        pieces += [word[:n] for n in range(2, len(word) + 1)] + [
            "\u2581" + word[:n] for n in range(1, len(word) + 1)
        ]
    for rank, piece in enumerate(dict.fromkeys(pieces)):
        tokens.append(piece)
        scores.append(-1.0 - rank / 100 + len(piece))
        types.append(1)
    return tokens, scores, types


def layer_count(arch: TinyArch) -> int:
    """Layers of the variant: 2 for llama; 6 for gemma3, of which only the last one is full attention."""
    return 2 if arch == "llama" else 6


def write_tiny_model(path: Path, arch: TinyArch = "llama", *, n_ctx_train: int = 4096, seed: int = 7) -> Path:
    """Write the model to `path` and return `path`. The same arguments give the same bytes."""
    tokens, scores, types = vocabulary()
    writer = gguf.GGUFWriter(path, arch)
    n_layer = layer_count(arch)
    writer.add_name(f"tiny {arch}")
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    if arch == "gemma3":
        writer.add_sliding_window(SLIDING_WINDOW)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    for name, tensor in _tensors(arch, n_layer, len(tokens), np.random.default_rng(seed)):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(
    arch: TinyArch, n_layer: int, n_vocab: int, rng: np.random.Generator
) -> list[tuple[str, np.ndarray]]:
    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float16)

    def norm(size: int = N_EMBD) -> np.ndarray:
        return np.ones(size, dtype=np.float32)

    q, kv = N_HEAD * HEAD_SIZE, N_HEAD_KV * HEAD_SIZE
    tensors = [("token_embd.weight", matrix(n_vocab, N_EMBD)), ("output_norm.weight", norm())]
    for i in range(n_layer):
        block = {
            "attn_norm": norm(),
            "attn_q": matrix(q, N_EMBD),
            "attn_k": matrix(kv, N_EMBD),
            "attn_v": matrix(kv, N_EMBD),
            "attn_output": matrix(N_EMBD, q),
            "ffn_norm": norm(),
            "ffn_gate": matrix(N_FF, N_EMBD),
            "ffn_up": matrix(N_FF, N_EMBD),
            "ffn_down": matrix(N_EMBD, N_FF),
        }
        if arch == "gemma3":
            block |= {
                "attn_q_norm": norm(HEAD_SIZE),
                "attn_k_norm": norm(HEAD_SIZE),
                "post_attention_norm": norm(),
                "post_ffw_norm": norm(),
            }
        tensors += [(f"blk.{i}.{name}.weight", tensor) for name, tensor in block.items()]
    return tensors
