"""Publishes the finished files of ``write`` or ``extract``: all at one moment, and exactly once."""
