"""Statements that ask PostgreSQL's catalogue; the braces take quoted literals."""

TABLE = """
SELECT format('%I.%I', n.nspname, c.relname), n.nspname || '.' || c.relname, c.oid::int8,
       c.reltuples::int8,
       (SELECT coalesce(sum(pg_table_size(t.relid)), pg_table_size(c.oid))
        FROM pg_partition_tree(c.oid) AS t)::int8
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass({}) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
KEY = """
SELECT a.attname::text
FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = {} AND i.indisprimary ORDER BY k.place
"""
NOT_NULL = (
    "SELECT attname::text FROM pg_attribute WHERE attrelid = {} AND attnotnull AND attnum > 0"
)
TABLES = """
SELECT n.nspname || '.' || c.relname FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY 1 LIMIT 10000
"""
HISTOGRAM = """
SELECT unnest(histogram_bounds::text::text[]) FROM pg_stats
WHERE format('%I.%I', schemaname, tablename) = {} AND attname = {}
  AND coalesce((SELECT sum(f) FROM unnest(most_common_freqs) AS f), 0) < 0.1
"""
TYPE = """
SELECT format_type(oid, -1), typtype::text FROM pg_type WHERE oid = pg_typeof(({}))
"""
