"""A program with stubs of the libraries that it does not need: it starts, and does what it did."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.hosts import NamespaceHost
from harness.model.errors import CommandFailed
from harness.parse import jobfile
from harness.runs import fio_startup
from harness.testbeds import entry_points
from harness.testbeds.lab import boot
from harness.testbeds.lab.boot import stubs
from tests.unit.storage.files import lines, scripts

pytestmark = pytest.mark.thorough

LIBRARY = "int gone(void) { return 40; }"
PROGRAM = """
#include <math.h>
#include <stdio.h>
extern int gone(void);
int main(int argc, char **argv) {
    if (argc > 2) return gone();
    printf("%s %.3f\\n", argv[1], cos(argc));
    return 0;
}
"""

SLEEPS = """
import ctypes, threading, time
usleep = ctypes.CDLL(None).usleep

def slept(us):
    began = time.monotonic()
    usleep(us)
    return time.monotonic() - began

def in_a_job():
    print("job", slept(100_000) >= 0.1)

job = threading.Thread(target=in_a_job)
job.start()
job.join()
print("other", slept(99_999) >= 0.099)
pieces = [slept(100_000) for _ in range(51)]
slept(10_000)  # the job above has ended
whole = slept(10_000)
rounds = []
for _ in range(20):  # other programs may have the processor in some
    threading.Thread(target=time.sleep, args=(0.002,)).start()
    rounds.append([slept(10_000) for _ in range(3)])
until_it_ends, after_that, again = zip(*rounds)
print("beside", whole >= 0.01, min(until_it_ends) < 0.01, min(after_that) < 0.01, max(again) >= 0.01)
print("first", min(pieces[:50]) < 0.05 and sum(pieces[:50]) >= 0.1, "then", pieces[50] >= 0.1)
"""
SHARES = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
size = 5 * 4096 + 7
made = libc.shmget(0, size, 0o1600)
for flags, said in ((0, "it"), (0o10000, "read")):  # SHM_RDONLY
    at = libc.shmat(made, None, flags)
    if not flags:
        assert ctypes.string_at(at, size) == bytes(size)
        ctypes.memset(at, 7, size)
    print(said, ctypes.string_at(at, size) == bytes([7]) * size)
libc.shmctl(made, 0, None)
libc.shmdt(ctypes.c_void_p(at))
print(libc.shmat(-1, None, 0) == 2**64 - 1, ctypes.get_errno())
"""

FORKS = """
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int fio_clock_source = 2, fio_clock_source_set, calibrated;
bool tsc_reliable;
void fio_clock_init(void) { calibrated++; }
int fio_monotonic_clocktest(int debug) { return debug || getenv("FAILS"); }
int main(int argc, char **argv) {
    char text[80] = "";
    int flags = MAP_SHARED | MAP_ANONYMOUS, *runs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    tsc_reliable = !getenv("UNRELIABLE");
    if (!fgets(text, sizeof(text), stdin)) return 77;
    if (!strcmp(text, "wait")) for (;;) pause();
    if (!strcmp(text, "abort")) abort();
    printf("%d words to %s, clock %d, calibrated %d, ", argc, argv[argc - 1], fio_clock_source, calibrated);
    printf("runs %d, told %d", ++*runs, getenv("HARNESS_FORKING") != NULL);
    fprintf(stderr, "%s\\n", text);
    return atoi(text);
}
"""


def fresh_fio() -> fio_startup.Fio:
    """It is tried once in a process."""
    fio_startup.fio.cache_clear()
    return fio_startup.fio()


@pytest.fixture(scope="module", params=["versions", "none"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose library ``libgone`` is gone, with versions of its symbols or without."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("lean")
    lines(folder, {"gone.c": LIBRARY, "main.c": PROGRAM, "map": "GONE_1 { global: gone; };"})
    versions = "-Wl,--version-script=map" if request.param == "versions" else ""
    link = "-Wl,-z,now,--no-as-needed -L. -lgone -lm"
    for words in (f"-shared -o libgone.so gone.c {versions}", f"-pie -o program main.c {link}"):
        subprocess.run(["cc", "-fPIC", *words.split()], cwd=folder, check=True)
    (folder / "libgone.so").unlink()
    return folder / "program"


def test_it_starts_without_the_library_and_does_the_rest(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert subprocess.run([program, "said"], capture_output=True, check=False).returncode == 127
    stubs.make(str(program), tmp_path)
    assert not list(tmp_path.glob("lib*")), "a library that is not named has no stub"
    monkeypatch.setattr(stubs, "DISPENSABLE", re.compile(r"libgone\.so\b"))
    monkeypatch.setattr(stubs, "WITHOUT_VERSION", re.compile("gone"))
    stubs.make(str(program), tmp_path)
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([program, "said"], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "said -0.416\n", "")
    # Another kind of file is refused.
    scripts(tmp_path, {"fio": ""})
    with pytest.raises(CommandFailed):
        stubs.make(f"{tmp_path}/fio", tmp_path)


def test_one_that_is_not_understood_is_started_as_it_is_and_tests_its_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fresh_fio() == fio_startup.Fio(), "without fio nothing fails here"
    for does, has_tested_clock in (
        ("echo 'cs: reliable_tsc: yes'", True),
        ("echo 'cs: reliable_tsc: yes'; exit 1", False),
        ("echo 'cs: reliable_tsc: no'", False),
        ("echo 'fio: unrecognized option'", False),
        ("exit 1", False),
    ):
        scripts(tmp_path, {"fio": does})
        assert fresh_fio() == fio_startup.Fio(has_tested_clock=has_tested_clock), does


def test_the_machine_s_fio_starts_with_stubs_and_has_the_engines_of_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (program := shutil.which("fio")) is None or shutil.which("cc") is None:
        pytest.skip("there is no fio, or no C compiler")
    stubs.make(program, tmp_path)
    monkeypatch.setenv(entry_points.EARLY, str(tmp_path))
    made = fresh_fio()
    assert made.env == {"LD_LIBRARY_PATH": str(tmp_path)}  # there is no early.so
    env = {**os.environ, **made.env}
    loaded, listed = (
        subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout
        for argv in (["ldd", program], ["fio", "--enghelp"])
    )
    mine = [line for line in loaded.splitlines() if stubs.DISPENSABLE.match(line.strip())]
    assert mine and all(str(tmp_path) in line for line in mine)
    assert {*jobfile._ENGINES} <= {*listed.split()}


def test_the_labs_library_is_in_front_of_fio_s_if_fio_starts_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts(tmp_path, {"fio": "echo 'cs: reliable_tsc: yes'"})
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv(entry_points.EARLY, str(tmp_path))
    # ld.so(8) says that it is not there, and goes on.
    assert fresh_fio() == fio_startup.Fio(has_tested_clock=True)
    (tmp_path / "stubs.so").touch()
    with_stubs = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert fresh_fio() == fio_startup.Fio(has_tested_clock=True, env=with_stubs)
    env = {**with_stubs, "LD_PRELOAD": _build(tmp_path)}
    found = fresh_fio()
    assert found == fio_startup.Fio(has_tested_clock=True, env=env)
    reported = {"has_stubs": True, "has_preloaded_library": True, "has_tested_clock": True, "forks": False}
    assert found.described == reported


def _build(folder: Path) -> str:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    cc = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(
        [*cc, "-o", folder / "early.so", *(boot.HERE / name for name in ("early.c", "forking.c"))], check=True
    )
    return str(folder / "early.so")


def test_what_fio_s_main_thread_sleeps_around_jobs_is_cut_and_its_memory_is_what_it_was(
    tmp_path: Path,
) -> None:
    env = {**os.environ, "LD_PRELOAD": _build(tmp_path)}
    argv = [sys.executable, "-c", SLEEPS + SHARES]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("job True", "other True", "beside True True True True", "first True then True"),
        *("it True", "read True", f"True {errno.EINVAL}"),
    ]


@pytest.fixture
def forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the lab's libraries and of a program that has the functions of fio's clock."""
    _build(tmp_path)
    lines(tmp_path, {"fio.c": FORKS})
    subprocess.run(["cc", "-rdynamic", "-o", "fio", "fio.c"], cwd=tmp_path, check=True)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv(entry_points.EARLY, str(tmp_path))


@pytest.mark.usefixtures("forks")
def test_in_the_lab_fio_is_loaded_once_and_forks_for_each_job() -> None:
    made, host = fresh_fio(), NamespaceHost("initiator")
    assert made.has_tested_clock and made.described["forks"] and made.loaded is not None
    for text, status in (("0", 0), ("3", 3), ("0 again", 0)):
        done = made.run(host, text, 10)
        said = "3 words to -, clock 3, calibrated 1, runs 1, told 0"
        assert (done.status, done.stdout, done.stderr) == (status, said, f"{text}\n")
    assert made.run(host, "abort", 10).status == -signal.SIGABRT
    assert made.run(host, "", 10).status == 77, "each child has an input of its own"
    assert made.read_only().loaded is None, "what it is started with is that of the one that was loaded"
    with pytest.raises(CommandFailed, match="did not end within"):
        made.run(host, "wait", 0.2)
    # Whatever is left of that is killed, and others are started as before.
    assert not made.loaded.is_up and "calibrated 0" in made.run(host, "0", 10).stdout
    again = fresh_fio().loaded
    assert again is not None and again.is_up
    fio_startup.end()
    assert not again.is_up


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("name", ["UNRELIABLE", "FAILS"])
def test_a_clock_that_fio_would_not_take_is_left_to_fio(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "yes")
    made = fresh_fio()
    assert made.loaded is None and not made.has_tested_clock and not made.described["forks"]
