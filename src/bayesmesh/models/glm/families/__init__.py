"""Families of outcomes: one file each, whose name is the family's in a configuration."""
