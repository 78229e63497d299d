"""Everything that acts: policies in JAX (`base`), their file (`export`), and numpy alone (`deploy`)."""
