-- From version 1 to 2: enrolments, and the trials that they opened.

-- What a harness may open trials for, as enrolling echoed it. The token is SHA-256 alone.
CREATE TABLE enrolments (
    enrolment      TEXT PRIMARY KEY,
    digest         BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    enrolment_json TEXT NOT NULL,
    issued_at_us   INTEGER NOT NULL,
    expires_at_us  INTEGER NOT NULL,
    revoked_at_us  INTEGER
) STRICT, WITHOUT ROWID;

-- A trial's life. No two trials are the same attempt, whatever was asked for at once.
CREATE TABLE attempts (
    trial         TEXT PRIMARY KEY REFERENCES trials (trial),
    enrolment     TEXT NOT NULL REFERENCES enrolments (enrolment),
    task          TEXT NOT NULL,
    nonce         TEXT NOT NULL,
    attempt       INTEGER NOT NULL CHECK (attempt >= 1),
    state         TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'verifying', 'closed')),
    first_seq     INTEGER NOT NULL,
    expires_at_us INTEGER NOT NULL,
    receipt       TEXT CHECK ((receipt IS NULL) = (state <> 'closed')),
    UNIQUE (enrolment, task, nonce),
    UNIQUE (enrolment, task, attempt)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 2;
