"""What commands do to a PostgreSQL: migrations, the way of numbering, copies, inspection."""
