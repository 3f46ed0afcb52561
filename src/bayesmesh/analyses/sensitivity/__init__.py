"""Say how much each quantity depends on prior and on likelihood, by raising one of them to a power."""
