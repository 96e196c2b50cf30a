"""Real database servers for the tests, on loopback, run by an unprivileged user."""
