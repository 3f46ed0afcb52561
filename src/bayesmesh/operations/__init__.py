"""Inspect and maintain an installation: status, doctor, verify, gc and the scaffold of new components."""
