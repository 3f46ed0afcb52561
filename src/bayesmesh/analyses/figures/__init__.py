"""Draw small SVG panels that take their colours and font from the page around them."""
