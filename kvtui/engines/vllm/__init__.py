"""vLLM: its server launched (`server`), asked (`client`), its stream read (`answers`)."""
