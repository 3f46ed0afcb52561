"""Everything this project knows of Slurm: the step's variables, the queue, the executor."""
