"""The first signal asks, the second ends; the command that continues is the one that was given."""

import os
import shlex
import signal
import subprocess
import sys

from nllb_cli.commands.ends import GRACE_S, Ends, resume_command
from nllb_cli.errors import ExitCode


def test_a_signal_asks_for_an_end_and_sets_the_code():
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        asked, before = [], signal.getsignal(number)
        with Ends() as ends:
            ends.attach(asked.append)
            os.kill(os.getpid(), number)
            assert asked == [GRACE_S]
            assert ends.code == ExitCode(code)
        assert signal.getsignal(number) is before


def test_a_second_signal_ends_at_once():
    script = (
        "import os, signal; from nllb_cli.commands.ends import Ends\n"
        "with Ends() as ends:\n"
        "    ends.attach(lambda grace: None)\n"
        "    os.kill(os.getpid(), signal.SIGTERM); print('asked', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM); print('never')\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (143, "asked\n")


def test_the_first_signal_says_what_a_second_does_and_that_says_its_last_words():
    script = (
        "import os, signal; from nllb_cli.commands.ends import Ends\n"
        "with Ends() as ends:\n"
        "    ends.attach(lambda grace: None, lambda: 'stopped')\n"
        "    os.kill(os.getpid(), signal.SIGINT); print(ends.notice, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGINT); print('never')\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    notice = "finishing what is in flight; Ctrl-C again stops now\n"
    assert (result.returncode, result.stdout, result.stderr) == (130, notice, "nllb: stopped\n")


def test_last_words_do_not_wait_for_who_does_not_read_them():
    script = (
        "import fcntl, os; from nllb_cli.commands.ends import end_now\n"
        "fcntl.fcntl(2, 1031, 4096)\n"  # F_SETPIPE_SZ
        "os.write(2, b'x' * 4096)\n"
        "end_now(143, 'stopped')\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 143


def test_the_command_that_continues():
    given = ["nllb", "translate", "my file.txt", "--overwrite", "-o", "out.txt"]
    line = resume_command(given)
    assert shlex.split(line) == ["nllb", "translate", "my file.txt", "-o", "out.txt", "--resume"]
    assert resume_command(shlex.split(line)) == line
