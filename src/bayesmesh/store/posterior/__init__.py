"""The posterior store: chain groups joined without a copy, its axes, and readers of bounded memory."""
