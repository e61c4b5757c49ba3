-- About three times what the nodes' shared_buffers hold: most reads go to the kernel.
CREATE TABLE items (id integer PRIMARY KEY, body text NOT NULL);
INSERT INTO items SELECT id, repeat(md5(id::text), 6) FROM generate_series(1, 100000) AS id;
VACUUM (FREEZE, ANALYZE) items;

-- One index lookup and one page for each read, whatever the planner thinks of so many.
CREATE FUNCTION digest_of_random_items(reads integer) RETURNS text LANGUAGE sql AS $$
    SELECT max((SELECT md5(body) FROM items WHERE id = picked.id))
    FROM (SELECT 1 + floor(random() * 100000)::integer AS id FROM generate_series(1, reads)) AS picked
$$;

-- CPU time of the session's own process so far.
CREATE FUNCTION cpu_ms() RETURNS float LANGUAGE sql AS $$
    SELECT split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::float / 1e6
$$;

-- How many such reads take a millisecond: the best of five, since what else runs only makes them dearer.
CREATE TABLE calibration (reads_per_ms float NOT NULL);
DO $$
DECLARE
    reads constant integer := 100000;
    best float := 0;
    began float;
BEGIN
    FOR i IN 1..5 LOOP
        began := cpu_ms();
        PERFORM digest_of_random_items(reads);
        best := greatest(best, reads / (cpu_ms() - began));
    END LOOP;
    INSERT INTO calibration VALUES (best);
END
$$;
CHECKPOINT;
