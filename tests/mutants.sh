#!/usr/bin/env bash
# Change the code in small ways, one at a time, and see whether the unit tests notice: mutation testing with mutmut 3.
#
#     pip install mutmut
#     tests/mutants.sh collectives/ring.py collectives/tree.py -- test_collectives.py
#
# The first names are of files in the package, those after -- of files in tests/unit. It runs in a copy of the tree,
# which is laid out as mutmut wants it, and ends with the changes that no test has noticed; in the same folder
# `python -m mutmut show NAME` says what each of them is. FOLDER names another copy.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
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
cp -r "$root/reference/farandole" "$root/reference/farandole_tools" "$folder/src/"
cp -r "$root/tests/unit" "$root/tests/__init__.py" "$folder/tests/"
# Not the tests' own conftest, which starts a fork server in each run and looks for processes after each test. A failing
# example need not be shrunk: that it fails is all that counts.
cat > "$folder/tests/conftest.py" <<'PY'
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "mutants",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=30,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("mutants")
PY

quoted() { printf '"%s", ' "$@"; }
cat > "$folder/pyproject.toml" <<TOML
[tool.mutmut]
source_paths = ["src"]
only_mutate = [$(quoted "${files[@]/#/src/farandole/}")]
pytest_add_cli_args_test_selection = [$(quoted "${@/#/tests/unit/}")]
pytest_add_cli_args = ["-x", "-q", "-p", "no:cacheprovider"]
timeout_multiplier = 4.0
timeout_constant = 3.0
track_dependencies = false

[tool.pytest.ini_options]
markers = ["alone", "gpu"]
TOML
cd "$folder"
echo "in $folder"
nice python -m mutmut run --max-children 1
python -m mutmut results
