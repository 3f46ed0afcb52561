"""Leave out folds of rows, groups of them or what comes later, sample each time again, and score what was left out."""
