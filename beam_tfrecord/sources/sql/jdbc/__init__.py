"""The engine of every database that has a JDBC driver."""
