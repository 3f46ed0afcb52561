"""One transition kernel a file; each is found by its file name."""
