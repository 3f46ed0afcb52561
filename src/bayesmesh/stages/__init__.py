"""Run one stage of the flow per module, from its spec to its files; modules named `stage_` help all."""
