-- Run once, by psql, on the first primary: what the nodes' ledger and agents log in as, and no more than they need.
CREATE ROLE ledger LOGIN;
CREATE ROLE plimsoll LOGIN IN ROLE pg_monitor;
CREATE DATABASE ledger OWNER ledger;
\connect ledger ledger
CREATE TABLE entries (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
-- What readers look at: the clients raise it all the time, and so know how old what they read is.
CREATE TABLE beat (only_one bool PRIMARY KEY DEFAULT true CHECK (only_one), n bigint NOT NULL DEFAULT 0);
INSERT INTO beat DEFAULT VALUES;
-- What a long query on a standby reads, so that replay has to wait for it.
CREATE TABLE looked_at ();
