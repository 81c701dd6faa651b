"""What a context of a model costs and what fits, before anything is launched: for a command and a screen alike."""
