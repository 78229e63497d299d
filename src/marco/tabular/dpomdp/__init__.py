"""The .dpomdp file format."""
