"""One module for each subcommand of `runbook`: ABOUT, configure(parser), run(arguments)."""
