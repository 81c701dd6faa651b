"""Ollama: a private daemon of our own beside the operator's, with the same model store."""
