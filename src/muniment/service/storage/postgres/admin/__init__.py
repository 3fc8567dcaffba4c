"""Administration of PostgreSQL for the commands: migrations, numbers of rows, copies, inspection."""
