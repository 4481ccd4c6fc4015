"""The cases, grouped by what they exercise."""
