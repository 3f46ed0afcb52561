"""Turn a dataset into row shards: fetch, read, split, shard."""
