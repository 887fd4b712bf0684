"""A TeX formula as one line of text: letters, signs, raised and lowered digits. What is not known stays as it is written."""

from __future__ import annotations

import re

from antiphon.wire.rules import name_set

_SIGNS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "varepsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ",
    "sigma": "σ", "tau": "τ", "phi": "φ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ",
    "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
    "times": "×", "cdot": "·", "div": "÷", "pm": "±", "mp": "∓", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠",
    "neq": "≠", "approx": "≈", "equiv": "≡", "sim": "∼", "infty": "∞", "partial": "∂", "nabla": "∇", "int": "∫", "sum": "∑",
    "prod": "∏", "in": "∈", "notin": "∉", "subset": "⊂", "cup": "∪", "cap": "∩", "emptyset": "∅", "forall": "∀",
    "exists": "∃", "to": "→", "rightarrow": "→", "leftarrow": "←", "Rightarrow": "⇒", "Leftrightarrow": "⇔", "implies": "⇒",
    "ldots": "…", "dots": "…", "cdots": "⋯", "degree": "°", "quad": "  ", "qquad": "   ", "langle": "⟨", "rangle": "⟩",
}  # fmt: skip
_FUNCTIONS = name_set("sin cos tan cot arcsin arccos arctan sinh cosh tanh log ln lg exp max min sup inf lim det gcd")
"""Commands that are read as they are called."""
_RAISED = dict(zip("0123456789+-=()nixyabck", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣʸᵃᵇᶜᵏ", strict=True))
_LOWERED = dict(zip("0123456789+-=()aeoxijknmt", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₒₓᵢⱼₖₙₘₜ", strict=True))
_GROUP = r"\{([^{}]*)\}"
_FRACTION = re.compile(rf"\\[dt]?frac\s*{_GROUP}\s*{_GROUP}")
_ROOT = re.compile(rf"\\sqrt\s*{_GROUP}")
_WORDS = re.compile(rf"\\(?:text|mathrm|mathbf|mathit|operatorname|mathbb|mathcal)\s*{_GROUP}")
_SCRIPT = re.compile(rf"([\^_])(?:{_GROUP}|([A-Za-z0-9]))")
_COMMAND = re.compile(r"\\([A-Za-z]+) ?")
_SPACES = re.compile(r"\\[,;:! ]|~|\\(?:left|right|displaystyle)(?![A-Za-z])\s*")


def formula_text(tex: str) -> str:
    """The formula as text."""
    text, before = _SPACES.sub(" ", tex.strip()), ""
    text = _COMMAND.sub(lambda found: _SIGNS.get(found[1], found[1] if found[1] in _FUNCTIONS else found[0]), text)
    while text != before:  # from the inside to the outside
        before = text
        text = _WORDS.sub(r"\1", text)
        text = _SCRIPT.sub(_script, text)
        text = _FRACTION.sub(lambda found: f"{_closed(found[1])}/{_closed(found[2])}", text)
        text = _ROOT.sub(lambda found: f"√{_closed(found[1])}", text)
    return re.sub(r"\s+", " ", text.replace("\\\\", "; ").replace("\\", "" if "\\{" in text else "\\")).strip()


def _closed(text: str) -> str:
    return text if re.fullmatch(r"[\w⁰-ₜ.]+", text) else f"({text})"


def _script(found: re.Match[str]) -> str:
    table = _RAISED if found[1] == "^" else _LOWERED
    text = found[2] if found[2] is not None else found[3]
    if text and all(char in table for char in text):
        return "".join(table[char] for char in text)
    return f"{found[1]}{_closed(text)}" if found[2] is not None else found[0]
