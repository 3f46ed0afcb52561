"""Leave out folds of rows, of whole groups or of later rows, sample again for each fold, and score the rows left out."""
