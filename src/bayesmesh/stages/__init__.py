"""Run one stage of the flow per module, from its spec to its files; all stages share the modules named `stage_`."""
