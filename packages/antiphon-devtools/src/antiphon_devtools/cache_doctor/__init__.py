"""Prompt caches of providers: what a request would read from them, and what broke the prefix."""

from antiphon_devtools.cache_doctor.difference import Difference as Difference
from antiphon_devtools.cache_doctor.doctor import CacheDoctor as CacheDoctor
from antiphon_devtools.cache_doctor.outline import PromptOutline as PromptOutline
from antiphon_devtools.cache_doctor.outline import outline_prompt as outline_prompt
from antiphon_devtools.cache_doctor.report import CacheReport as CacheReport
from antiphon_devtools.cache_doctor.rules import CacheRules as CacheRules
from antiphon_devtools.cache_doctor.rules import cache_rules as cache_rules
