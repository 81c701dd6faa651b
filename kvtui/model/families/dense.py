"""Architectures with full attention in every layer (per-layer head counts included)."""

from __future__ import annotations

from kvtui.model.families.arch import Arch

_NAMES = (
    "apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell cogvlm "
    "command-r dbrx deci deepseek deepseek2-ocr dots1 ernie4_5 ernie4_5-moe exaone falcon gemma glm4 glm4moe "
    "gpt2 gptneox granite granitemoe grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 "
    "internlm2 jais jais2 llama llama-embed maincoder minicpm minicpm3 minimax-m2 mistral3 mpt nemotron olmo "
    "olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo plm pockettts qwen qwen2 qwen2moe "
    "qwen2vl qwen3 qwen3moe qwen3tts qwen3vl qwen3vlmoe refact seed_oss smollm3 stablelm starcoder starcoder2 "
    "t5encoder talkie xverse "
)

DENSE = (
    *(Arch(name, "full attention") for name in _NAMES.split()),
    Arch("grok", "full attention; the engine forces flash attention off", flash_attn=False),
)
