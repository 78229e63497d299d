"""Checks of settings: a bad value is refused by its name before anything is compiled."""


def check_positive(owner: str, **values: float | int) -> None:
    """Refuse settings that must be positive and are not."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{owner}: {name} must be positive, got {value}.")


def check_between(owner: str, low: float, high: float, **values: float | int) -> None:
    """Refuse settings outside a closed range."""
    for name, value in values.items():
        if not low <= value <= high:
            raise ValueError(f"{owner}: {name} must be between {low} and {high}, got {value}.")
