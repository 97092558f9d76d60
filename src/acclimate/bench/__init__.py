"""Measuring: streams of a set, metrics with their uncertainty, and files of results."""
