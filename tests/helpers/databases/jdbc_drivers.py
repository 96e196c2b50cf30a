"""Drivers for the tests, from Maven Central; and statements run through them."""

import os
import shutil

import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.jdbc_java import helper, java, local_jars, result_of

H2 = "com.h2database:h2:2.4.240"
POSTGRES = "org.postgresql:postgresql:42.7.8"
MARIADB = "org.mariadb.jdbc:mariadb-java-client:3.5.6"
MYSQL = "com.mysql:mysql-connector-j:9.4.0"


def driver_jars(coordinates):
    """Return the jars of a driver, or skip the test where they cannot be had."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java runtime")
    try:
        return local_jars((coordinates,))
    except UsageError as error:
        pytest.skip(str(error))


def execute(jars, url, *statements, **properties):
    """Run statements over a connection of its own that commits each."""
    known = java().JClass("java.util.Properties")()
    for name, value in properties.items():
        known.setProperty(name, value)
    connection = result_of(helper("Connector").open(jars, "", url, known))
    try:
        statement = connection.createStatement()
        for text in statements:
            statement.execute(text)
    finally:
        connection.close()
