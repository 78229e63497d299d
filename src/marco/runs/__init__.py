"""A run as a folder: configuration, data, checkpoint, metrics, policies, figures."""
