"""Look at results and take care of them: status, doctor, verify, gc, and the scaffold of new components."""
