"""The time of day of a process, and the doubts about it."""

from __future__ import annotations

from muniment.clock.judged import STEADY_MS as STEADY_MS, Clock as Clock, Doubt as Doubt
from muniment.clock.neighbours import Neighbours as Neighbours, Voice as Voice, outvoted_by as outvoted_by
from muniment.clock.steadiness import Steadiness as Steadiness
