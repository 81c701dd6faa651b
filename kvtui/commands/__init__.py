"""One module per sub-command: `add_parser(subparsers)` declares it, `run(args)` does it and returns the exit status."""
