"""The learned Dec-POMDP."""
