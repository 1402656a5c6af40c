-- From version 3 to 4: prompt mode `bound`.

-- What the patient and the judge of a task may be told, as digests.
CREATE TABLE prompts (
    task         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('patient', 'judge')),
    prompts_json TEXT NOT NULL,
    PRIMARY KEY (task, role)
) STRICT, WITHOUT ROWID;

-- What a trial's clinician said, in order, as keyed digests; `answers` is a JSON list of those that we returned.
CREATE TABLE turns (
    trial        TEXT NOT NULL,
    number       INTEGER NOT NULL CHECK (number >= 1),
    digest       TEXT NOT NULL,
    system       TEXT NOT NULL,
    answers      TEXT NOT NULL DEFAULT '[]',
    other_answer TEXT,
    sent         INTEGER NOT NULL DEFAULT 0 CHECK (sent >= 0),
    under_way    INTEGER NOT NULL DEFAULT 0 CHECK (under_way >= 0),
    PRIMARY KEY (trial, number)
) STRICT, WITHOUT ROWID;

-- The turn that an exchange sends; null where its prompt is not bound, and for a judge.
ALTER TABLE reservations ADD COLUMN turn INTEGER;

PRAGMA user_version = 4;
