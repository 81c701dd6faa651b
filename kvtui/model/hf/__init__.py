"""Models as Hugging Face describes them (`config.json`), and what vLLM keeps for them."""
