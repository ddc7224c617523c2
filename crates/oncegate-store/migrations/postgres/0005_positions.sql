-- Where sources stand that oncegate itself looks at: a schedule goes on from there after a restart, and of nodes that
-- look at once only the one that finds the version it saw moves it.
CREATE TABLE source_positions (
    workspace_id bigint NOT NULL,
    source       text NOT NULL,
    -- Counts its moves.
    version      bigint NOT NULL CHECK (version >= 1),
    value        text NOT NULL,
    moved_at     bigint NOT NULL,
    PRIMARY KEY (workspace_id, source)
);
