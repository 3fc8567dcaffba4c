// Triggers in SQLite, by better-sqlite3. A commit is on the disk before it is answered: WAL with synchronous=FULL.
import { readFileSync } from "node:fs";
import Database from "better-sqlite3";

export function openSqlite(path) {
  const database = new Database(path);
  database.pragma("journal_mode = WAL");
  database.pragma("synchronous = FULL");
  database.pragma("cache_size = -32768"); // as Muniment's
  database.pragma("wal_autocheckpoint = 8192");
  database.exec(readFileSync(new URL("schema.sqlite.sql", import.meta.url), "utf8"));
  const inputs = database.prepare("SELECT inputs FROM functions WHERE cid = ?").pluck();
  const one = database.prepare("SELECT record, deactivated FROM triggers WHERE sig = ?").raw();
  const page = database
    .prepare("SELECT seq, record FROM triggers WHERE signer = ? AND seq < ? ORDER BY seq DESC LIMIT ?")
    .raw();
  const rising = database
    .prepare("SELECT seq, record FROM triggers WHERE signer = ? AND seq > ? ORDER BY seq LIMIT ?")
    .raw();
  const known = database.prepare("SELECT record, deactivated FROM triggers WHERE signer = ? AND digest = ?").raw();
  const insert = database.prepare(
    "INSERT INTO triggers (sig, signer, digest, created_at_ms, record) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
  );
  const store = database.transaction((rows) =>
    rows.map((row) => {
      const { changes } = insert.run(row.sig, row.signer, row.digest, row.createdAtMs, row.record);
      return changes ? [row.record, 0] : known.get(row.signer, row.digest);
    }),
  );
  return {
    inputs: (cid) => inputs.get(cid),
    one: (sig) => one.get(sig),
    page: (signer, from, limit, isRising) => (isRising ? rising : page).all(signer, from, limit),
    known: (signer, digest) => known.get(signer, digest),
    store: (rows) => store.immediate(rows),
    close: () => database.close(),
  };
}
