"""Run a chain group: the one loop, its identity, stops and watch, and the thread that commits draws."""
