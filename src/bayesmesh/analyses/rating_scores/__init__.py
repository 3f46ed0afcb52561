"""Score predictions of held-out ratings: errors beside those of simple rules, and how often intervals cover them."""
