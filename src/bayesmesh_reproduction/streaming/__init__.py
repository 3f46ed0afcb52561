"""Sample with running moments instead of stored draws, so that memory does not grow with the number of steps."""
