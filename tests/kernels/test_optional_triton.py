"""Kernel files load, and their twins run, on a machine without Triton."""

import subprocess
import sys

PROGRAM = """
import sys

sys.modules["triton"] = None  # importing it raises ImportError
import torch
from nllb_cli.kernels import norm

x = torch.ones(2, 4)
print(norm.add_layer_norm(x, torch.ones(2, 4), torch.ones(4), torch.zeros(4)).shape, x.sum())
"""


def test_twins_run_without_triton():
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "torch.Size([2, 4]) tensor(16.)\n"
