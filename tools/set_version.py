"""Write a version into the four packages, which have one version and need each other in exactly that one.

python tools/set_version.py 0.3.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PACKAGES = Path(__file__).parent.parent / "packages"


def main() -> int:
    if len(sys.argv) != 2 or not re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", sys.argv[1]):
        print("usage: python tools/set_version.py 1.2.3", file=sys.stderr)
        return 2
    version = sys.argv[1]
    for file in sorted(PACKAGES.glob("*/pyproject.toml")):
        text = re.sub(r'^version = ".*"$', f'version = "{version}"', file.read_text(), count=1, flags=re.MULTILINE)
        file.write_text(re.sub(r'("antiphon[\w-]*(?:\[[\w,]+\])?==)[\w.]+"', rf'\g<1>{version}"', text))
    door = PACKAGES / "antiphon" / "src" / "antiphon" / "__init__.py"
    door.write_text(re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', door.read_text(), flags=re.MULTILINE))
    print(f"the four packages are {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
