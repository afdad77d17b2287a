#!/usr/bin/env bash
# Change the code in small ways, one at a time, and see whether the unit tests notice: mutation testing with mutmut 3.8.
#
#     pip install mutmut==3.8.1
#     tests/mutants/run.sh collectives/ring.py collectives/tree.py -- test_collectives.py
#
# The first names are of files in the package, those after -- of files in tests/unit. It runs in a copy of the tree,
# which is laid out as mutmut wants it, and lists the changes that no test has noticed; in the same folder
# `python -m mutmut show NAME` says what each of them is. FOLDER names another copy, EXAMPLES the number of examples of
# each property (12).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${FOLDER:-${TMPDIR:-/tmp}/farandole-mutants}
files=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    files+=("$1")
    shift
done
if [ ${#files[@]} -eq 0 ] || [ $# -lt 2 ]; then
    echo "give files of the package, then -- and files of tests/unit, as: collectives/ring.py -- test_collectives.py" >&2
    exit 2
fi
shift

rm -rf "$folder"
mkdir -p "$folder/src" "$folder/tests"
cp -r "$root/reference/farandole" "$folder/src/"
cp -r "$root/tests/unit" "$root/tests/__init__.py" "$folder/tests/"

quoted() { printf '"%s", ' "$@"; }
cat > "$folder/pyproject.toml" <<TOML
[tool.mutmut]
source_paths = ["src"]
only_mutate = [$(quoted "${files[@]/#/src/farandole/}")]
track_dependencies = false

[tool.pytest.ini_options]
markers = ["alone", "gpu", "numerics"]
TOML
# Few examples, the same for all changes, and none made smaller: whether a property fails is all that matters.
cat > "$folder/tests/conftest.py" <<'PYTHON'
import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "mutants",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=int(os.environ.get("EXAMPLES", "12")),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("mutants")
PYTHON
cd "$folder"
echo "in $folder"
python - > generated.txt <<'PYTHON'
from pathlib import Path

from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_mutants, setup_source_paths

if __name__ == "__main__":
    Path("mutants").mkdir()
    copy_src_dir()
    copy_also_copy_files()
    setup_source_paths()
    create_mutants(1)
PYTHON
cd mutants
PYTHONPATH="$root/tests/mutants:$PWD/src" MUTANT_UNDER_TEST="" nice python -m pytest -q -p forks \
    -p no:cacheprovider -p no:xdist -p no:timeout --rootdir=. "${@/#/tests/unit/}"
