"""What commands do to a PostgreSQL: migrations, numbers of rows, copies, inspection."""
