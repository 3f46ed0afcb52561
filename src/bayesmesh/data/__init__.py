"""From a named dataset to row shards: fetch, read, split, shard."""
