"""To and from other modelling languages; nothing here is imported unless a model asks for it."""
