"""One module per arrow of the flow: what a job of that stage does, from its spec to its files."""
