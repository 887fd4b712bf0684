"""Prompt caches of providers: what a request would read from them, and what broke the prefix."""

from antiphon.caching.difference import Difference as Difference
from antiphon.caching.doctor import CacheDoctor as CacheDoctor
from antiphon.caching.outline import PromptOutline as PromptOutline
from antiphon.caching.outline import outline_prompt as outline_prompt
from antiphon.caching.report import CacheReport as CacheReport
from antiphon.caching.rules import CacheRules as CacheRules
from antiphon.caching.rules import cache_rules as cache_rules
