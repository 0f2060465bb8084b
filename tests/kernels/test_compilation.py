"""Every kernel compiles for a Hopper GPU, on a machine without one.

The interpreter runs what the compiler may refuse. Launchers are called with recorders in place of
their kernels, so that what is compiled is what would be launched, the default tuning included.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compile_for_hopper.py")
WIDE = (
    "_add_layer_norm_kernel",
    "_embed_layer_norm_kernel",
    "_self_attention_kernel",
    "_self_attention_kernel",  # of one beam
    "_cross_attention_rows_kernel",
    "_cross_attention_dot_kernel",
    "_encoder_attention_kernel",
)
OTHERS = {
    "_lm_head_tiles_kernel",
    "_merge_tiles_kernel",
    "_merge_many_kernel",
    "_rescore_kernel",
    "_beam_step_kernel",
    "_admit_kernel",
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_kernels_compile_and_layers_load_16_bytes_at_once(tmp_path, dtype):
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(SCRIPT), dtype]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    lines = result.stdout.splitlines()
    assert lines[: len(WIDE)] == [f"{kernel} 4" for kernel in WIDE]
    assert {line.split()[0] for line in lines[len(WIDE) :]} >= OTHERS
