"""Plan a run before any job starts: stages and their inputs, fingerprints, resources, the site."""
