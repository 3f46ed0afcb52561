"""Plan a run before any job starts: stages, their inputs and versions, resources, the site."""
