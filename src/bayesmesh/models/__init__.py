"""One model a file; each is found by its file name."""
