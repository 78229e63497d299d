"""Episodes: replayed, on disk, and logged by others."""
