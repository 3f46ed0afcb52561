"""Rank unwatched films for each user under posterior uncertainty and score the ranking on held-out films."""
