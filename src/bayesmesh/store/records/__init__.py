"""What a job wrote last: what it read and wrote, sealed with its own digest."""
