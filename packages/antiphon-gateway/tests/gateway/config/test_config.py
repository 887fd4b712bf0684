"""`antiphon.toml`: what is accepted, everything that is refused with its line, and no secret in messages."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.budget.counts import instructions_of
from hypothesis import given
from hypothesis import strategies as st

from antiphon.providers.presets import PRESETS
from antiphon_gateway.config.checks import check_config, glob_covers
from antiphon_gateway.config.file import ConfigError, load_config, read_config
from antiphon_gateway.config.settings import Config, ModelSettings, ProviderSettings, config_schema
from support.repository import ROOT

KEY = "sk-a-real-secret-that-must-not-show"
ENVIRON = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": f"{KEY}-2", "ANTIPHON_CLIENT_KEY": f"{KEY}-3"}
GOOD = """
[gateway]
client_keys = ["env:ANTIPHON_CLIENT_KEY"]

[[providers]]
name = "openai"
format = "openai-chat"
base_url = "https://api.openai.com/v1"
keys = ["env:OPENAI_API_KEY", "file:second"]

[[providers]]
name = "anthropic"

[[models]]
name = "claude-*"
targets = ["anthropic/*", "openai/gpt-5"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "second").write_text("sk-another-secret-1234\n")
    return tmp_path / "antiphon.toml"


def problems(file: Path, text: str | bytes, environ: dict[str, str] | None = None) -> list[tuple[int, str, str]]:
    """Everything that is wrong with a text: line, key, reason."""
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as refused:
        load_config(file, ENVIRON if environ is None else environ)
    assert KEY not in str(refused.value)
    return [(problem.line, problem.key, problem.reason) for problem in refused.value.problems]


def test_a_good_file(file: Path) -> None:
    file.write_text(GOOD)
    config = load_config(file, ENVIRON)
    openai, anthropic = config.providers
    assert config.gateway.port == 8000
    assert openai.keys == ("env:OPENAI_API_KEY", f"file:{file.parent / 'second'}")
    assert anthropic.keys == ("env:ANTHROPIC_API_KEY",)
    assert (anthropic.effective_preset.format, anthropic.effective_preset.auth) == ("anthropic", "x-api-key")
    assert read_config(file, ENVIRON).secret_files == (file.parent / "second",)
    assert KEY not in repr(config)


@pytest.mark.parametrize("text", ["", "# nothing\n", "\ufeff[gateway]\r\nport = 9000\r\n"])
def test_a_minimal_configuration_is_enough(file: Path, text: str) -> None:
    file.write_bytes(text.encode())
    assert load_config(file, {}).gateway.port in (8000, 9000)


PROVIDER = '[[providers]]\nname = "openai"\n'
MINE = '[[providers]]\nname = "mine"\nformat = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\n'

# Each: a file, and every problem reported: (line, key, what the reason says).
REFUSED: dict[str, tuple[str, list[tuple[int, str, str]]]] = {
    "near miss": ("[gateway]\nprot = 1\n", [(2, "gateway.prot", "did you mean port?")]),
    "near miss of a table": ('[[provider]]\nname = "x"', [(1, "provider", "did you mean providers?")]),
    "nothing near": ("[gateway]\nzzz = 1\n", [(2, "gateway.zzz", "available: host, port, format_port")]),
    "one bracket": ('[providers]\nname = "openai"\n', [(1, "providers", "write [[providers]]")]),
    "no table": ("gateway = 3\n", [(1, "gateway", "expected a table: [gateway], got an integer")]),
    "no list of tables": ("models = 3\n", [(1, "models", "expected a list")]),
    "an item that is not a table": ("models = [3]\n", [(1, "models[0]", "expected a table")]),
    "ports equal": ("[gateway]\nport = 9\nformat_port = 9\n", [(3, "gateway.format_port", "same as port")]),
    "default port taken": ("[gateway]\nport = 8181\n", [(1, "gateway.format_port", "same as port")]),
    "bounds": (
        "[gateway]\nport = 65536\nmax_connections = 0\nbody_seconds = 0\nrequest_seconds = inf\nheader_seconds = nan",
        [
            (2, "gateway.port", "at most 65535"),
            (3, "gateway.max_connections", "at least 1"),
            (4, "gateway.body_seconds", "more than 0"),
            (5, "gateway.request_seconds", "at most 86400"),
            (6, "gateway.header_seconds", "more than 0"),
        ],
    ),
    "types": (
        '[gateway]\nport = "8000"\nrepair = 1\nhost = 127\nbody_seconds = true\nstate = 2024-01-01\nclient_keys = "x"\n',
        [
            (2, "gateway.port", "expected an integer, got a string"),
            (3, "gateway.repair", "expected true or false, got an integer"),
            (4, "gateway.host", "expected a string, got an integer"),
            (5, "gateway.body_seconds", "expected a number, got a boolean"),
            (6, "gateway.state", "got a date"),
            (7, "gateway.client_keys", 'expected a list: ["…"]'),
        ],
    ),
    "words": ('[gateway]\nlog = "jsn"\n', [(2, "gateway.log", "one of console, json; did you mean json?")]),
    "host": ('[gateway]\nhost = "http://x"\n', [(2, "gateway.host", "without scheme and port")]),
    "empty host": ('[gateway]\nhost = ""\n', [(2, "gateway.host", "must not be empty")]),
    "a key in the file": (
        f'[gateway]\nclient_keys = ["{KEY}"]\n{PROVIDER}keys = [\n  "env:OPENAI_API_KEY",\n  "{KEY}",\n]\n',
        [(2, "gateway.client_keys[0]", "antiphon key new"), (7, "providers[0].keys[1]", 'use "env:NAME"')],
    ),
    "a key under another name": (f'{PROVIDER}api_key = "{KEY}"\n', [(3, "providers[0].api_key", 'keys = ["env:NAME"]')]),
    "a key in a header": (
        f'{MINE}[providers.headers]\nAuthorization = "Bearer {KEY}"\n',
        [(6, "providers[0].headers.Authorization", "contains a literal key")],
    ),
    "a key in the address": (
        f'{PROVIDER}base_url = "https://host/v1?api_key={KEY}"\n',
        [(3, "providers[0].base_url", "contains a key")],
    ),
    "a password in the address": (
        f'{PROVIDER}base_url = "https://me:{KEY}@host/v1"\n',
        [(3, "providers[0].base_url", "contains a user name or password")],
    ),
    "a key after env:": (f'{PROVIDER}keys = ["env:{KEY}"]\n', [(3, "providers[0].keys[0]", "not a valid variable name")]),
    "no variable": (f'{PROVIDER}keys = ["env:NOT_SET"]\n', [(3, "providers[0].keys[0]", "NOT_SET is not set")]),
    "no variable named": (
        f'{PROVIDER}keys = ["env:", "file:"]\n',
        [(3, "providers[0].keys[0]", "no variable name"), (3, "providers[0].keys[1]", "no file path")],
    ),
    "no file": (f'{PROVIDER}keys = ["file:gone"]\n', [(3, "providers[0].keys[0]", "gone: No such file")]),
    "a path of no user": (
        '[gateway]\nstate = "~no-such-user/state.db"\nclient_keys = ["file:~no-such-user/key"]\n',
        [
            (2, "gateway.state", "not a valid path: there is no home folder ~no-such-user"),
            (3, "gateway.client_keys[0]", "not a valid path: there is no home folder ~no-such-user"),
        ],
    ),
    "a zero byte in a path": (
        '[gateway]\nclient_keys = ["file:a\\u0000b"]\n[ledger]\naddress = "a\\u0000b"\n',
        [(2, "gateway.client_keys[0]", "not a valid path"), (4, "ledger.address", "not a valid path")],
    ),
    "an empty key": (
        f'[gateway]\nclient_keys = [""]\n[[keys]]\nname = "a"\nkey = ""\n{PROVIDER}keys = ["", 1]\n',
        [
            (2, "gateway.client_keys[0]", "must not be empty"),
            (5, "keys[0].key", "must not be empty"),
            (8, "providers[0].keys[0]", "must not be empty"),
            (8, "providers[0].keys[1]", "expected a string, got an integer"),
        ],
    ),
    "a folder as a key": (f'{PROVIDER}keys = ["file:."]\n', [(3, "providers[0].keys[0]", "cannot read the key file")]),
    "a hash for a provider": (
        f'{PROVIDER}keys = ["sha256:{"0" * 64}"]\n',
        [(3, "providers[0].keys[0]", "contains a literal key")],
    ),
    "no hash": ('[gateway]\nclient_keys = ["sha256:12"]\n', [(2, "gateway.client_keys[0]", "64 hexadecimal digits")]),
    "one key twice": (
        '[gateway]\nclient_keys = ["env:OPENAI_API_KEY"]\n[[keys]]\nname = "a"\nkey = "env:OPENAI_API_KEY"\n',
        [(5, "keys[0].key", "same key as gateway.client_keys[0]")],
    ),
    "names taken": (
        PROVIDER + PROVIDER + f'[[models]]\nname = "m"\ntargets = ["openai/*"]\n[[models]]\nname = "m"\ntargets = ["openai/x"]\n'
        f'[[keys]]\nname = "k"\nkey = "sha256:{"0" * 64}"\n[[keys]]\nname = "k"\nkey = "sha256:{"1" * 64}"\n',
        [
            (4, "providers[1].name", "already used by providers[0]"),
            (9, "models[1].name", "already used by models[0]"),
            (15, "keys[1].name", "already used by keys[0]"),
        ],
    ),
    "missing": (
        "[[providers]]\n[[models]]\n[[keys]]\n",
        [
            (1, "providers[0].name", "required"),
            (2, "models[0].name", "required"),
            (2, "models[0].targets", "required"),
            (3, "keys[0].name", "required"),
            (3, "keys[0].key", "required"),
        ],
    ),
    "name of a provider": ('[[providers]]\nname = "a/b"\npreset = "openai"\n', [(2, "providers[0].name", "a slash")]),
    "who is that": ('[[providers]]\nname = "opnai"\n', [(1, "providers[0].format", "did you mean openai")]),
    "preset": ('[[providers]]\nname = "x"\npreset = "antropic"\n', [(3, "providers[0].preset", "did you mean anthropic")]),
    "format": ('[[providers]]\nname = "openai"\nformat = "openai"\n', [(3, "providers[0].format", "one of anthropic, gemini")]),
    "format and preset": (
        '[[providers]]\nname = "x"\npreset = "openai"\nformat = "gemini"\n',
        [(4, "providers[0].format", "conflicts with preset openai, which speaks openai-chat")],
    ),
    "dialect": (f'{MINE}dialect = "mistrall"\n', [(5, "providers[0].dialect", "did you mean mistral")]),
    "no address": ('[[providers]]\nname = "x"\nformat = "openai-chat"\n', [(1, "providers[0].base_url", "required")]),
    "bad address": (f'{PROVIDER}base_url = "ftp://host"\n', [(3, "providers[0].base_url", "is not an http or https URL")]),
    "in a circle": (
        f'{PROVIDER}base_url = "http://localhost:8181/v1"\n',
        [(3, "providers[0].base_url", "points to this gateway")],
    ),
    "in a circle by default": ('[[providers]]\nname = "vllm"\n', [(1, "providers[0].base_url", "points to this gateway")]),
    "no key": ('[[providers]]\nname = "groq"\n', [(1, "providers[0].keys", "GROQ_API_KEY is not set")]),
    "no key for its own host": (
        '[[providers]]\nname = "groq"\nbase_url = "https://api.groq.com"\n',
        [(1, "providers[0].keys", "required")],
    ),
    "headers": (
        MINE + '[providers.headers]\n"a b" = "c"\nX-Team = "\\u0007"\nX-Number = 3\n',
        [
            (6, "providers[0].headers.'a b'", "not a valid header name"),
            (7, "providers[0].headers.X-Team", "not allowed in a header"),
            (8, "providers[0].headers.X-Number", "expected a string"),
        ],
    ),
    "targets": (
        PROVIDER + '[[models]]\nname = "m"\ntargets = [\n"opnai/x",\n"openai",\n"openai/",\n3,\n"openai/x",\n"openai/x"]\n',
        [
            (6, "models[0].targets[0]", "did you mean openai?"),
            (7, "models[0].targets[1]", "expected provider/model"),
            (8, "models[0].targets[2]", "expected provider/model"),
            (9, "models[0].targets[3]", "expected a string"),
            (11, "models[0].targets[5]", "duplicate"),
        ],
    ),
    "how long prompts are cached": (
        PROVIDER + 'cache_prompt = "2h"\n[[models]]\nname = "m"\ntargets = ["openai/x"]\ncache_prompt = 5\n',
        [
            (3, "providers[0].cache_prompt", 'expected one of true, false, "1h", "5m", "auto"'),
            (7, "models[0].cache_prompt", 'expected one of true, false, "1h", "5m", "auto"'),
        ],
    ),
    "weights without their order": (
        PROVIDER + '[[models]]\nname = "m"\ntargets = ["openai/x", "openai/y"]\nweights = [1, 2]\n',
        [(6, "models[0].weights", 'no effect with order = "listed"')],
    ),
    "a weight is missing": (
        PROVIDER
        + '[[models]]\nname = "m"\ntargets = ["openai/x", "openai/y"]\norder = "weighted"\nweights = [1]\n',
        [(7, "models[0].weights", "has 1 numbers for 2 targets")],
    ),
    "no weight at all": (
        PROVIDER + '[[models]]\nname = "m"\ntargets = ["openai/x"]\norder = "weighted"\nweights = [0]\n',
        [(7, "models[0].weights", "all 0")],
    ),
    "no targets": (PROVIDER + '[[models]]\nname = "m"\ntargets = []\n', [(5, "models[0].targets", "must not be empty")]),
    "no providers": ('[[models]]\nname = "m"\ntargets = ["a/b"]\n', [(3, "models[0].targets[0]", "available: none")]),
    "never reached": (
        PROVIDER
        + "".join(f'[[models]]\nname = "{name}"\ntargets = ["openai/*"]\n' for name in ("claude-*", "gpt", "claude-opus-*")),
        [(10, "models[2].name", "unreachable: 'claude-*'")],
    ),
    "limits of a key": (
        f'[[keys]]\nname = "k"\nkey = "sha256:{"0" * 64}"\nrequests_per_minute = 0\nmodels = []\nstrict = "yes"\n',
        [
            (4, "keys[0].requests_per_minute", "at least 1"),
            (5, "keys[0].models", "must not be empty"),
            (6, "keys[0].strict", "expected true or false"),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED)
def test_refused_with_every_problem_where_it_is(file: Path, text: str, expected: list[tuple[int, str, str]]) -> None:
    found = problems(file, text)
    found_lines = sorted((line, key) for line, key, _ in found)
    assert found_lines == sorted((line, key) for line, key, _ in expected), found
    for line, key, words in expected:
        assert any(words in reason for at, whose, reason in found if (at, whose) == (line, key)), found


# Each: the bytes of a file, and the problem reported: (line, column, reason).
UNREADABLE: dict[str, tuple[bytes, int, int, str]] = {
    "syntax": (b"[gateway]\nport == 1\n", 2, 7, "invalid TOML: invalid value"),
    "end": (b'[gateway]\nhost = "x', 2, 0, "invalid TOML: "),
    "twice": (b"[gateway]\nport = 1\nport = 2\n", 3, 9, "invalid TOML: cannot overwrite a value"),
    "not UTF-8": (b'[gateway]\n# ok\nhost = "\xff"\n', 3, 0, "not valid UTF-8"),
    "deep": (b"a = " + b"[" * 100_000, 0, 0, "nested too deeply"),
    "long number": (b"a = " + b"1" * 10_000, 0, 0, "a number is too long"),
    "zero bytes": (b"\0" * 10, 1, 1, "invalid TOML"),
    "enormous": (b"#" * (9 * 1024 * 1024), 0, 0, "larger than"),
}


@pytest.mark.parametrize(("data", "line", "column", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_invalid_toml(file: Path, data: bytes, line: int, column: int, reason: str) -> None:
    file.write_bytes(data)
    (problem,) = read_config(file, {}).problems
    assert problem.line == line
    assert not column or problem.column == column
    assert reason in problem.reason
    assert str(problem).startswith(f"{file}:{line}:" if line else f"{file}: ")


def test_a_missing_file(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "gone.toml", "not found"),
        (tmp_path, "is a folder"),
        (tmp_path / "gone" / "x", "not found"),
        (Path("a\0b"), "not a valid path"),
    ):
        (problem,) = read_config(path, {}).problems
        assert reason in str(problem)


def test_all_problems_of_two_invalid_providers_are_reported(file: Path) -> None:
    found = problems(
        file,
        '[[providers]]\nformat = 1\n[[providers]]\nname = "x"\nretries = -1\n[[models]]\nname = ""\ntargets = ["y/z"]',
    )
    assert [(line, key) for line, key, _ in found] == [
        (1, "providers[0].name"),
        (2, "providers[0].format"),
        (3, "providers[1].format"),
        (5, "providers[1].retries"),
        (7, "models[0].name"),
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["team-{}", "team-{}-*", "[ab]{}", "*-{}"])
def test_twice_the_models_and_keys_are_twice_the_work(file: Path, form: str) -> None:
    def work(count: int) -> int:
        models = (f'[[models]]\nname = "{form.format(n)}"\ntargets = ["openai/m{n}"]\n' for n in range(count))
        keys = (f'[[keys]]\nname = "k{n}"\nkey = "sha256:{n:064x}"\n' for n in range(count))
        file.write_text("".join((PROVIDER, *models, *keys)))
        return instructions_of(lambda: read_config(file, ENVIRON))

    work(40)  # imports and caches
    assert work(80) / work(40) < 2.1


@given(st.text(max_size=200))
def test_no_text_is_a_traceback(text: str) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        file = Path(folder) / "antiphon.toml"
        file.write_text(text, "utf-8", "surrogatepass")
        read = read_config(file, {})
    assert (read.config is None) == bool(read.problems)


NAMES = st.sampled_from(["gateway", "providers", "models", "keys", "name", "port", "targets", "headers", "x", ""])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99_999) | st.floats() | st.sampled_from(["", "openai", "a/b", "env:X"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_no_table_is_a_traceback_and_what_is_accepted_fits_the_types(tables: dict[str, Any]) -> None:
    from antiphon_gateway.config.schema import check_types

    config, findings = check_types(Config, tables)
    check_config(config, {})
    try:
        msgspec.convert(tables, Config)
    except msgspec.ValidationError:
        assert findings
    else:
        assert not findings
        assert msgspec.convert(tables, Config) == config


# Globs.

PATTERNS = st.text("ab*?", min_size=1, max_size=5) | st.sampled_from(["[ab]", "a[!b]", "[", "a[b", "[!a]*", "*[ab]"])
WORDS = ["".join(letters) for length in range(6) for letters in product("abc", repeat=length)]


@given(PATTERNS, PATTERNS)
def test_a_covered_pattern_matches_no_further_names(wide: str, narrow: str) -> None:
    if glob_covers(wide, narrow):
        assert not [word for word in WORDS if fnmatchcase(word, narrow) and not fnmatchcase(word, wide)]


@given(st.lists(PATTERNS, max_size=6))
def test_a_name_is_unreachable_below_a_pattern_that_covers_it(names: list[str]) -> None:
    models = tuple(ModelSettings(name=name, targets=("openai/*",)) for name in names)
    found = check_config(Config(providers=(ProviderSettings(name="openai"),), models=models), ENVIRON)
    expected = [
        f"unreachable: {next(above for above in names if glob_covers(above, name))!r} above it matches every such name"
        for number, name in enumerate(names)
        if name not in names[:number] and any(glob_covers(above, name) for above in names[:number])
    ]
    assert [problem.reason for problem in found if problem.reason.startswith("unreachable")] == expected


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered"),
    [
        ("*", "gpt-[45]", True),
        ("claude-*", "claude-opus-*", True),
        ("claude-*", "claude", False),
        ("gpt-?", "gpt-5", True),
        ("gpt-?", "gpt-*", False),
        ("*-codex", "gpt-*-codex", True),
        ("gpt-*", "*-codex", False),
        ("?*", "*", False),
        ("gpt-*", "gpt-[45]*", True),
    ],
)
def test_covers(wide: str, narrow: str, is_covered: bool) -> None:
    assert glob_covers(wide, narrow) == is_covered


# Providers.


def test_a_key_of_the_environment_goes_to_no_other_host(file: Path) -> None:
    file.write_text('[[providers]]\nname = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n')
    (provider,) = load_config(file, ENVIRON).providers
    assert (provider.keys, provider.effective_preset.auth) == ((), "none")


@pytest.mark.parametrize(
    ("settings", "preset"),
    [
        (ProviderSettings(name="openai"), "openai"),
        (ProviderSettings(name="openai", format="openai-responses"), "openai-responses"),
        (ProviderSettings(name="mine", format="openai-chat"), "compatible"),
        (ProviderSettings(name="mine", preset="groq"), "groq"),
        (ProviderSettings(name="offline"), "offline"),
        (ProviderSettings(name="mine", preset="offline"), "offline"),
        (ProviderSettings(name="mine"), ""),
    ],
)
def test_the_preset_of_a_provider(settings: ProviderSettings, preset: str) -> None:
    assert settings.preset_name == preset


# The schema, the sample, the page.


def test_the_schema_describes_every_key_and_accepts_what_we_accept() -> None:
    from jsonschema import Draft202012Validator

    schema = config_schema()
    Draft202012Validator.check_schema(schema)
    tables = {name: inner for name, inner in schema["$defs"].items() if name.endswith("Settings")}
    assert len(tables) == 7
    for table in tables.values():
        assert table["additionalProperties"] is False
        assert all("description" in described for described in table["properties"].values())
    validator = Draft202012Validator(schema)
    assert not list(validator.iter_errors(tomllib.loads(GOOD)))
    assert list(validator.iter_errors({"gateway": {"prot": 1}}))


def test_the_sample_is_accepted() -> None:
    config = load_config(ROOT / "deploy" / "antiphon.toml", ENVIRON)
    assert config.providers
    assert config.models
    assert config.keys == ()


def test_the_page_names_every_key() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    for table in config_schema()["$defs"].values():
        for key in table["properties"]:
            assert re.search(rf"\b{key}\b", page), key


def test_every_preset_can_be_configured(file: Path) -> None:
    for name in PRESETS:
        text = f'[gateway]\nport = 7999\n[[providers]]\nname = "{name}"\nkeys = ["env:OPENAI_API_KEY"]\nbase_url = "https://host/v1"\n'
        text += "".join(f'{setting.name} = "some-name"\n' for setting in PRESETS[name].settings)
        file.write_text(text)
        assert load_config(file, ENVIRON).providers[0].effective_preset.format == PRESETS[name].format


def test_capabilities_of_ones_own_models(file: Path) -> None:
    file.write_text(
        GOOD + '[[capabilities]]\nmodel = "prod-*"\nlike = "gpt-5"\nefforts = ["low", "high"]\nprefill = false\n'
    )
    (override,) = load_config(file, ENVIRON).capabilities
    assert (override.model, override.like) == ("prod-*", "gpt-5")
    assert override.facts == {"efforts": ("low", "high"), "prefill": False}


@pytest.mark.parametrize(
    ("lines", "key", "reason"),
    [
        (['model = "m"', 'like = "gpt-five"'], "capabilities[0].like", "unknown model"),
        (['model = "m"'], "capabilities[0]", "states nothing; set `like` or a capability"),
        (['model = "m"', 'efforts = ["huge"]'], "capabilities[0].efforts[0]", "expected one of high, low"),
        (
            ['model = "m"', 'like = "o3"', "prefil = true"],
            "capabilities[0].prefil",
            "unknown key; did you mean prefill",
        ),
        (["prefill = true"], "capabilities[0].model", "required"),
    ],
)
def test_wrong_capabilities_are_refused(file: Path, lines: list[str], key: str, reason: str) -> None:
    found = problems(file, GOOD + "[[capabilities]]\n" + "\n".join(lines) + "\n")
    assert [path for _, path, _ in found] == [key]
    assert found[0][2].startswith(reason)


@pytest.mark.parametrize(
    ("lines", "key", "reason"),
    [
        (['model = "m"'], "prices[0]", "states no price; set input, output"),
        (['model = ""', "input = 1"], "prices[0].model", "must not be empty"),
        (['model = "m"', "input = 1", "output = nan"], "prices[0].output", "must be at least 0"),
        (["input = 1"], "prices[0].model", "required"),
    ],
)
def test_wrong_prices_are_refused(file: Path, lines: list[str], key: str, reason: str) -> None:
    found = problems(file, GOOD + "[[prices]]\n" + "\n".join(lines) + "\n")
    assert [path for _, path, _ in found] == [key]
    assert found[0][2].startswith(reason)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2027-01-31", "2027-01-31T00:00:00+00:00"),
        ("2027-01-31T18:00:00", "2027-01-31T18:00:00+00:00"),
        ("2027-01-31T18:00:00+01:00", "2027-01-31T18:00:00+01:00"),
    ],
)
def test_a_key_expires_at_a_date_or_time(file: Path, written: str, expected: str) -> None:
    file.write_text(f'{GOOD}\n[[keys]]\nname = "k"\nkey = "env:ANTHROPIC_API_KEY"\nexpires = {written}\n')
    expires = load_config(file, ENVIRON).keys[0].expires
    assert expires is not None
    assert expires.isoformat() == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('expires = "soon"', "expected a date or time without quotes, such as 2027-01-31, got a string"),
        ("expires = 0001-01-01T00:00:00+14:00", "must be between the years 1 and 9999, in UTC"),
        ("budget_per_day = 0", "must be more than 0"),
        ("budget_per_month = -1.5", "must be more than 0"),
        ("tokens_per_day = 0.5", "expected an integer, got a number"),
        ("tokens_per_month = 0", "must be at least 1"),
        ("budget_per_year = 1", "unknown key; did you mean budget_per_day"),
    ],
)
def test_wrong_limits_of_keys_are_refused(file: Path, line: str, reason: str) -> None:
    found = problems(file, f'{GOOD}\n[[keys]]\nname = "k"\nkey = "env:ANTHROPIC_API_KEY"\n{line}\n')
    assert [(key, why[: len(reason)]) for _, key, why in found] == [(f"keys[0].{line.split()[0]}", reason)]
