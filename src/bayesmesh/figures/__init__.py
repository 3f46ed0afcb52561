"""Panels of the page: small SVG drawings that take their colours and their font from the page."""
