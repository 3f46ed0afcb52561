"""What a job writes last: a record of what it read and wrote, with a digest of its own."""
