-- From version 2 to 3: sealed consultations.

-- One consultation a trial, with the content of the task that it began with, and its one verdict.
CREATE TABLE consultations (
    trial        TEXT PRIMARY KEY REFERENCES trials (trial),
    task_digest  TEXT NOT NULL,
    reward_mode  TEXT,
    verdict_json TEXT CHECK ((verdict_json IS NULL) = (reward_mode IS NULL))
) STRICT, WITHOUT ROWID;

-- Every step, good or bad. `line` is the row of the transcript, `made_by` how a reply came about: for the host alone.
-- `audit_seq` is set once the record holds the step.
CREATE TABLE acts (
    trial       TEXT NOT NULL REFERENCES consultations (trial),
    step        INTEGER NOT NULL CHECK (step >= 0),
    act_key     TEXT,
    act_digest  TEXT NOT NULL,
    answer_json TEXT NOT NULL,
    line        TEXT,
    made_by     TEXT,
    entry_kind  TEXT NOT NULL,
    entry_json  TEXT NOT NULL,
    audit_seq   INTEGER,
    PRIMARY KEY (trial, step),
    UNIQUE (trial, act_key)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 3;
