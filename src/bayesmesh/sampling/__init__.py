"""From model, kernel and shards to committed draws: mesh, density, programs, the loop."""
