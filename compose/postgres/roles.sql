-- Run once, by psql, on a new primary: what stocks and the standbys log in as, and no more than they need.
CREATE ROLE replicator LOGIN REPLICATION;
CREATE ROLE stocks LOGIN;
CREATE DATABASE stocks OWNER stocks;
-- The master's stocks looks at the standbys, and keeps the list of those that commits wait for.
GRANT pg_read_all_stats TO stocks;
GRANT ALTER SYSTEM ON PARAMETER synchronous_standby_names TO stocks;
\connect stocks
GRANT EXECUTE ON FUNCTION pg_reload_conf() TO stocks;
