-- The ledger, version 1. Money is micro-dollars, moments are Unix microseconds (UTC).
-- Tokens are stored as SHA-256 alone.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES ('applied_seq', 0);

-- One key per trial, for the HMACs in the record; all tokens of a trial share it.
CREATE TABLE trials (
    trial      TEXT PRIMARY KEY,
    digest_key BLOB NOT NULL CHECK (length(digest_key) = 32)
) STRICT, WITHOUT ROWID;

-- What was granted, as minting echoed it.
CREATE TABLE tokens (
    token_id     TEXT PRIMARY KEY,
    digest       BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    trial        TEXT NOT NULL REFERENCES trials (trial),
    issued_at_us INTEGER NOT NULL,
    grant_json   TEXT NOT NULL
) STRICT;

CREATE INDEX tokens_of_trial ON tokens (trial);

-- What is left of it: all that a reservation reads and writes, in one small row, since
-- it is rewritten twice per exchange. A limit that is NULL does not limit. `reserved_*`
-- and `in_flight` are the sums over `reservations`, kept so that a check costs the same
-- at 1 and at 1,000 in flight.
CREATE TABLE balances (
    token_id          TEXT PRIMARY KEY REFERENCES tokens (token_id),
    expires_at_us     INTEGER NOT NULL,
    limit_requests    INTEGER,
    limit_tokens      INTEGER,
    limit_microusd    INTEGER,
    limit_concurrency INTEGER,
    limit_per_minute  INTEGER,
    used_requests     INTEGER NOT NULL DEFAULT 0 CHECK (used_requests >= 0),
    used_tokens       INTEGER NOT NULL DEFAULT 0 CHECK (used_tokens >= 0),
    used_microusd     INTEGER NOT NULL DEFAULT 0 CHECK (used_microusd >= 0),
    reserved_requests INTEGER NOT NULL DEFAULT 0 CHECK (reserved_requests >= 0),
    reserved_tokens   INTEGER NOT NULL DEFAULT 0 CHECK (reserved_tokens >= 0),
    reserved_microusd INTEGER NOT NULL DEFAULT 0 CHECK (reserved_microusd >= 0),
    in_flight         INTEGER NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    revoked_at_us     INTEGER,
    closed            TEXT
) STRICT, WITHOUT ROWID;

-- Exchanges that were admitted and are not settled. No foreign key here and below: a
-- reservation has just read the balance, and the check would double an insert's cost.
CREATE TABLE reservations (
    exchange_id    TEXT PRIMARY KEY,
    token_id       TEXT NOT NULL,
    requests       INTEGER NOT NULL CHECK (requests >= 0),
    tokens         INTEGER NOT NULL CHECK (tokens >= 0),
    microusd       INTEGER NOT NULL CHECK (microusd >= 0),
    audit_seq      INTEGER NOT NULL,
    reserved_at_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The last minute of tokens that have a rate limit.
CREATE TABLE admissions (
    token_id TEXT NOT NULL,
    at_us    INTEGER NOT NULL
) STRICT;

CREATE INDEX admissions_of_token ON admissions (token_id, at_us);

PRAGMA user_version = 1;
