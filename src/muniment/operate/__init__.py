"""Work on a whole registry, apart from the service: backups, checks, copies, watching. It neither prints nor asks."""
