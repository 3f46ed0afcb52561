"""What a user does to results that are there: check them, and remove what is no longer named."""
