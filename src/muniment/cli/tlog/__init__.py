"""`muniment tlog`: commands for the operator of the log, and for everybody who follows one."""

from muniment.cli.tlog import operating as operating, replaying as replaying, verifying as verifying
from muniment.cli.tlog.group import tlog as tlog
