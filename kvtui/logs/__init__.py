"""What an engine said: bytes of a start-up log in, proven facts out, each with the line it came from."""
