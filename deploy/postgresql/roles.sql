-- Roles of the archive's database. Run it once, as the role that owns the tables and has CREATEROLE, after `callkeeper archive migrate`:
--   psql -v ON_ERROR_STOP=1 -f roles.sql "$OWNER_URL"
-- Then give each role a password. Workers insert and read; nobody but the owner changes or deletes a line.
CREATE ROLE callkeeper_worker LOGIN;
CREATE ROLE callkeeper_web LOGIN;

GRANT SELECT ON archive_lines, archive_people, archive_terms, archive_chains, archive_erased, archive_holds, archive_version
    TO callkeeper_worker, callkeeper_web;
GRANT INSERT ON archive_lines, archive_people, archive_terms, archive_chains TO callkeeper_worker;
-- A chain's end moves with each line; its row is also the lock.
GRANT UPDATE (head_n, head_hash) ON archive_chains TO callkeeper_worker;
