"""Plan a run before any job starts: stages and what each reads, fingerprints, resources, the site."""
