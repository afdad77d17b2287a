"""Tricks of a submission in its sandbox: none of them reaches the checks, the grader, other files or the network."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from farandole_tools.lab import labs
from farandole_tools.lab.contained import kit
from farandole_tools.lab.grading import Result, grade, isolation

# Each is the body of a function that runs on both ranks. The trick has worked if it returns something true.
TRICKS = {
    "loads the reference": "return open(REFERENCE).read()",
    "imports the reference": """
        import importlib.util
        spec = importlib.util.spec_from_file_location('reference', REFERENCE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    """,
    "reads wrong.py": "return open(REFERENCE.replace('reference.py', 'wrong.py')).read()",
    "reads the hints": "return open(REFERENCE.replace('reference.py', 'HINTS.md')).read()",
    "puts a module into the package": """
        import farandole_tools
        open(farandole_tools.__path__[0] + '/x.py', 'w').write('x')
        return 1
    """,
    "finds a solution somewhere": """
        import os
        found = [os.path.join(where, name) for where, _, names in os.walk('/') for name in names]
        return [path for path in found if path.endswith(('/wrong.py', '_all_reduce/reference.py', 'labs/check.py'))]
    """,
    "calls the library's ring": """
        from farandole.collectives.ring import RING
        return RING
    """,
    "imports the library from its folder": """
        import sys
        sys.path.insert(0, LIBRARY)
        sys.modules.pop('farandole', None)
        import farandole.collectives.ring
        return 1
    """,
    "sends by MPI": """
        from mpi4py import MPI
        return MPI.COMM_WORLD.size
    """,
    "reaches MPI through comm": "return comm.mpi",
    "sets what was sent": """
        comm.bytes_sent = 7
        return comm.bytes_sent == 7
    """,
    "sends without being counted": "return comm.everybodys(np.ones(1))",
    "asks the other process for more": "return comm._peer.request('get', comm._id, 'mpi')",
    "calls what is not offered": "return comm._peer.request('method', comm._id, 'barrier', (), {}) or 1",
    "sets by message": """
        comm._peer.request('set', comm._id, 'size', 1)
        return 1
    """,
    "replaces the checks through gc": """
        import gc
        return [each for each in gc.get_objects() if getattr(each, '__name__', '') in ('expect', 'check_trick')]
    """,
    "finds the checks among the modules": """
        import sys
        return [name for name in sys.modules if name.startswith('farandole_lab_')]
    """,
    "sees other processes": """
        import os
        return [name for name in os.listdir('/proc') if name.isdigit() and int(name) > 100]
    """,
    "ends its parent": """
        import os, signal
        os.kill(os.getppid(), signal.SIGTERM)
        return 0  # nothing ends: the checks that follow pass
    """,
    "ends all that it may": """
        import os, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.kill(-1, signal.SIGTERM)
        return 0
    """,
    "ends the grader": """
        import os, signal
        os.kill(GRADER, signal.SIGKILL)
        return 1
    """,
    "deletes a sibling": """
        import os
        os.remove(SIBLING)
        return 1
    """,
    "reads a sibling": "return open(SIBLING).read()",
    "changes its own file": """
        open(__file__, 'a').write('x')
        return 1
    """,
    "writes beside its file": """
        import os
        open(os.path.join(os.path.dirname(__file__), 'x'), 'w').write('x')
        return 1
    """,
    "changes a library": """
        open(np.__file__, 'a').write('x')
        return 1
    """,
    "writes where the submissions are": """
        open(FOLDER + '/x', 'w').write('x')
        return 1
    """,
    "reads the passwords": "return open('/etc/shadow').read()",
    "reads the grader's environment": """
        import os
        return os.environ.get('SECRET_OF_THE_GRADER')
    """,
    "calls the network": """
        import socket
        socket.create_connection(('192.0.2.1', 80), 1)
        return 1
    """,
    "asks for a name": """
        import socket
        return socket.getaddrinfo('example.org', 80)
    """,
    "becomes root": """
        import os
        os.setuid(0)
        return os.getuid() == 0
    """,
    "mounts": """
        import ctypes
        return ctypes.CDLL(None).mount(b'none', b'/', b'tmpfs', 0, None) == 0
    """,
    "leaves its namespace": """
        import ctypes, os
        return ctypes.CDLL(None).setns(os.open('/proc/1/ns/mnt', 0), 0) == 0
    """,
    "passes a file to the other rank": """
        import os
        folders = ('/tmp', '/var/tmp', '/dev/shm', '.')
        for folder in folders if comm.rank == 0 else ():
            try:
                open(folder + '/passed', 'w').write('x')
            except OSError:
                pass
        comm.exchange(np.ones(1), 1 - comm.rank, np.ones(1), 1 - comm.rank)
        return comm.rank == 1 and any(os.path.exists(folder + '/passed') for folder in folders)
    """,
    "passes bytes by a socket": """
        import socket
        if comm.rank == 0:
            server = socket.socket(socket.AF_UNIX)
            server.bind('\\0passed')
            server.listen()
        comm.exchange(np.ones(1), 1 - comm.rank, np.ones(1), 1 - comm.rank)
        if comm.rank == 0:
            return 0
        socket.socket(socket.AF_UNIX).connect('\\0passed')
        return 1
    """,
    "starts processes without end": """
        import os, time
        for number in range(1000):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        return 1
    """,
    "fills the disk with many files": """
        for number in range(100):
            open(f'part{number}', 'wb').write(bytes(2**20))
        return 1
    """,
    "makes files without end": """
        for number in range(10_000):
            open(f'f{number}', 'w').close()
        return 1
    """,
}


@pytest.fixture(scope="module", params=["", "with_torch=True, shares_files=True"], ids=["", "with torch"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Every trick is a check of one lab, so that all share a launch."""
    if isolation() == "none":
        pytest.skip("this machine permits no namespaces to this user")
    folder = tmp_path_factory.mktemp("tricks")
    os.environ["SECRET_OF_THE_GRADER"] = "yes"
    try:
        lab, text = write_tricks(folder, TRICKS, grader=str(os.getpid()), options=request.param)
        given = grade(labs.load(lab), folder / "submission.py", limit_s=60)
    finally:
        del os.environ["SECRET_OF_THE_GRADER"]
    nothing_changed(folder, text)
    return dict(zip(TRICKS, given.results, strict=True))


def write_tricks(folder: Path, tricks: Mapping[str, str], grader: str, options: str = "") -> tuple[Path, str]:
    """Write a submission with these tricks, a lab with a check for each, and a sibling; return the lab and the text.

    Args:
        grader: the number of the grader's process.
        options: of the lab, as Python's text.
    """
    sibling = folder / "sibling.py"
    sibling.write_text("the work of another")
    reference = labs.find("2").folder / "reference.py"
    names = {"REFERENCE": reference, "LIBRARY": kit.source("farandole").parents[1], "SIBLING": sibling}
    names |= {"FOLDER": folder}
    text = "import numpy as np\n" + "".join(f"{name} = {str(value)!r}\n" for name, value in names.items())
    text += f"GRADER = {grader}\n"
    for number, body in enumerate(tricks.values()):
        text += f"def trick_{number}(comm):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    (folder / "submission.py").write_text(text)
    lab = folder / "02_tricks"
    lab.mkdir()
    (lab / "check.py").write_text(
        "from farandole_tools.lab import Check, Lab, expect\n"
        "from farandole_tools.lab.learner import Explained\n"
        "def trick(number):\n"
        "    def check_trick(student, comm):\n"
        "        try:\n"
        "            found = getattr(student, f'trick_{number}')(comm)\n"
        "        except Explained:\n"
        "            found = None\n"
        "        expect(not found, f'it works: {found!r:.200}')\n"
        "    return check_trick\n"
        f"checks = [Check(f'{{number}}', 1, (2,), trick(number)) for number in range({len(tricks)})]\n"
        "LAB = Lab('Tricks', 'submission.py', tuple(checks), " + options + ")\n"
    )
    return lab, text


def nothing_changed(folder: Path, text: str) -> None:
    assert (folder / "sibling.py").read_text() == "the work of another"
    assert (folder / "submission.py").read_text() == text
    assert sorted(path.name for path in folder.iterdir()) == ["02_tricks", "sibling.py", "submission.py"]


def test_no_trick_works(results: dict[str, Result]) -> None:
    assert {name: result.message for name, result in results.items() if not result.passed} == {}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("of the grader")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "ring.py").write_text("x = 1\n")
    (theirs / "helper.py").write_text("y = 2\n")
    (theirs / "link.txt").symlink_to(secret)
    copy = kit.copy_submission(theirs / "ring.py", tmp_path / "alone", helpers=False)
    assert [path.name for path in copy.parent.iterdir()] == ["ring.py"]
    copy = kit.copy_submission(theirs / "ring.py", tmp_path / "with", helpers=True)
    assert sorted(path.name for path in copy.parent.iterdir()) == ["helper.py", "ring.py"]


@pytest.mark.parametrize("folder", labs.folders(), ids=lambda folder: folder.name)
def test_a_kit_has_nothing_of_the_solution(folder: Path, tmp_path: Path) -> None:
    """No module of the reference is among those that the submission gets."""
    lab = labs.load(folder)
    taken = set(kit.imported((folder / "reference.py").read_text())) - set(kit.NAMES_ONLY)
    given = set(kit.given(lab))
    handed_out = set(kit.imported((folder / lab.file).read_text()))
    assert given & taken <= handed_out
    kit.write(tmp_path, lab)
    assert not [path for path in tmp_path.rglob("*.py") if path.name in ("check.py", "reference.py", "wrong.py")]
