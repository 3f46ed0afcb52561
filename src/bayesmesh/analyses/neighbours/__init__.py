"""Find the films whose embeddings point the same way, in every draw anew, so that rotations do not matter."""
