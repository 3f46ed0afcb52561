"""Sample the latents of users whom the chains have not seen, given draws of the films, for several analyses."""
