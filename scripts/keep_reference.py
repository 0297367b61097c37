"""Copy a result into results/reference/ so that it can be committed: everything but logs, runner output and
what a report makes of it anew.

    python scripts/keep_reference.py RESULT

The result should have been measured with machine=NAME given, as its folder is named after it. Refuses a result that
names a path of the machine it was measured on.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

REFERENCE = Path(__file__).resolve().parent.parent / "results" / "reference"
PAGES = ("report.html", "figures", "tables", "trace_launch_*.json")
MACHINE_PATHS = re.compile(r'"/(?:work|root|home|tmp|opt|mnt|Users)/[^"]*"')


def main(result: Path) -> int:
    result = result.resolve()
    machine, scenario = result.parent.parent.name, result.parent.name
    texts = [*result.glob("*.json"), *result.glob("launches/*/launch.json")]
    found = [
        f"{path.relative_to(result)}: {match}" for path in texts for match in MACHINE_PATHS.findall(path.read_text())
    ]
    if found:
        print(f"keep_reference: names paths of this machine: {found[0]}", file=sys.stderr)
        return 2
    target = REFERENCE / machine / scenario / result.name
    shutil.copytree(result, target, ignore=shutil.ignore_patterns("logs", "attempts", "*.log", *PAGES))
    print(target.relative_to(REFERENCE.parent.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
