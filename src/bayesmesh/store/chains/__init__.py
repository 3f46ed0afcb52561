"""The draws of one chain group: arrays, checkpoints, markers, and resuming from the last verified commit."""
