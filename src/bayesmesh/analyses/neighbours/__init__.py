"""Find films whose embeddings point the same way, separately in every draw, so that rotations do not matter."""
