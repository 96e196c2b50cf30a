"""Loopback emulators of object stores, and a proxy that fails on purpose."""
