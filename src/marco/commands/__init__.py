"""The sub-commands of `marco`, each a dataclass of its options."""
