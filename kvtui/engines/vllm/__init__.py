"""vLLM: its server launched (`server`), asked (`client`, `answers`), its log in common terms (`terms`)."""
