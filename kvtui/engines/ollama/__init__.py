"""Ollama: a private daemon of our own, with the operator's model store, or the one that the operator runs."""
