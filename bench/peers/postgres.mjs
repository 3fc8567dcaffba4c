// Triggers in PostgreSQL, by pg: a pool, statements prepared by name, rows as arrays. synchronous_commit stays on.
import { readFileSync } from "node:fs";
import pg from "pg";

// Not tuned: a few for two cores, below pg's own default of ten.
const CONNECTIONS = 8;

export async function openPostgres(url) {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS });
  pg.types.setTypeParser(pg.types.builtins.INT8, Number);
  await pool.query(readFileSync(new URL("schema.postgres.sql", import.meta.url), "utf8"));
  const ask = async (name, text, values) => (await pool.query({ name, text, values, rowMode: "array" })).rows;
  const known = async (signer, digest) =>
    (await ask("known", "SELECT record, deactivated FROM triggers WHERE signer = $1 AND digest = $2", [signer, digest]))[0];
  return {
    inputs: async (cid) => (await ask("inputs", "SELECT inputs FROM functions WHERE cid = $1", [cid]))[0]?.[0],
    one: async (sig) => (await ask("one", "SELECT record, deactivated FROM triggers WHERE sig = $1", [sig]))[0],
    page: (signer, from, limit, isRising) =>
      isRising
        ? ask(
            "rising",
            "SELECT seq, record FROM triggers WHERE signer = $1 AND seq > $2 ORDER BY seq LIMIT $3",
            [signer, from, limit],
          )
        : ask(
            "page",
            "SELECT seq, record FROM triggers WHERE signer = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3",
            [signer, from, limit],
          ),
    known,
    store: async (rows) => {
      const stored = await ask(
        "store",
        `INSERT INTO triggers (sig, signer, digest, created_at_ms, record)
         SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::text[])
         ON CONFLICT DO NOTHING RETURNING sig`,
        ["sig", "signer", "digest", "createdAtMs", "record"].map((name) => rows.map((row) => row[name])),
      );
      const added = new Set(stored.map(([sig]) => sig.toString("hex")));
      return Promise.all(
        rows.map((row) => {
          // Of two equal ones in one statement, the first is stored; `delete` makes the second ask for it.
          if (added.delete(row.sig.toString("hex"))) return [row.record, 0];
          return known(row.signer, row.digest);
        }),
      );
    },
    close: () => pool.end(),
  };
}
