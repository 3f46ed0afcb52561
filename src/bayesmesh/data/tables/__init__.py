"""Read tables and arrays in blocks of bounded memory: formats, kinds of columns, choice of rows, fields."""
