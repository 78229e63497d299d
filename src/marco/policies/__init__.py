"""Everything that acts."""
