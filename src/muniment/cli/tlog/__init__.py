"""`muniment tlog`: commands for the operator of the log, and for everybody who follows one."""
