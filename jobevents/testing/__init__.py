"""Contracts and tools that prove a backend right, shipped to users."""
