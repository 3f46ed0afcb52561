"""Call the workflow from Python: sample, open results and read verdicts, in a notebook or a script."""
