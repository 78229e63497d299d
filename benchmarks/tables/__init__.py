"""The tables of the report: each function reads rows and returns Markdown."""
