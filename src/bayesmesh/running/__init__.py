"""Run a job: start processes, hear signals, assign GPUs, read Slurm, show progress, keep the ledger."""
