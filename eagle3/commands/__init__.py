"""One module a subcommand; each has `NAME`, `ABOUT`, `configure(parser)` and `run(arguments)`."""
