"""Work on a whole registry that runs apart from the service: backups, checks, copies. It neither prints nor asks."""
