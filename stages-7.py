





import sqlite3

with sqlite3.connect("shop.db") as connection:
    connection.execute("CREATE TABLE trips (id INTEGER PRIMARY KEY, fare REAL)")
    connection.executemany("INSERT INTO trips (fare) VALUES (?)", [(number / 2,) for number in range(100)])
