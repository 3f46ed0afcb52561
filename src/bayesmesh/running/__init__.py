"""Support every job while it runs: processes, signals, GPUs, progress, the ledger."""
