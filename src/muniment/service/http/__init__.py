"""HTTP: operations from handlers, problem documents from refusals. Knows no resource and no database."""
