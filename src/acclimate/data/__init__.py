"""Datasets, one family a file, and the corruptions that make shifted ones of clean ones."""
