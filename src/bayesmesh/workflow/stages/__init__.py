"""Run one stage of the flow per module, from its spec to its files, and record what it wrote."""
