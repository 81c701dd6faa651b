"""Where models live: files and folders, Ollama's store, the Hugging Face cache, addresses."""
