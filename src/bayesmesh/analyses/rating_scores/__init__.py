"""Score predicted ratings on hidden ones: errors beside simple rules, and how often intervals hold them."""
