"""The command line: one file for each command, each imported fast and heavy only once it runs."""
