"""The architecture as a test: who may import whom, file sizes, one test file a source file."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [p.relative_to(ROOT) for p in (ROOT / "nllb_cli").rglob("*.py") if p.stem[:2] != "__"]
LEAVES = {"records", "options", "errors", "__version__"}
MAY_IMPORT = {
    "records": set(),
    "errors": set(),
    "options": {"errors"},
    "languages": {"errors"},
    "kernels": {"kernels"},  # the stand-ins for Triton
    "model": LEAVES | {"model", "kernels"},
    "engine": LEAVES | {"engine", "model", "kernels"},
    "text": LEAVES | {"text", "languages"},
    "io": LEAVES | {"io"},
    "prefetch": set(),
    "stream": LEAVES | {"prefetch", "text"},
    "pipeline": LEAVES | {"stream", "text", "engine", "model", "languages"},
    "bench": LEAVES | {"pipeline", "stream", "text", "engine"},
    "plan": LEAVES | {"io"},
    "slices": LEAVES | {"io"},
    "progress": LEAVES | {"io"},
    "jobs": LEAVES | {"io", "plan", "slices", "progress"},
    "manifest": LEAVES | {"io", "plan"},
    "cli": LEAVES | {"commands"},
    "commands": LEAVES
    | {"pipeline", "plan", "slices", "jobs", "progress", "manifest", "stream", "text"}
    | {"languages", "bench", "commands"},
}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_layout(path):
    source = (ROOT / path).read_text()
    assert source.count("\n") <= 400, "split it"
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    imported = {name.split(".")[1] for name in names if name.startswith("nllb_cli.")}
    assert imported <= MAY_IMPORT[path.with_suffix("").parts[1]]
    mirror = ROOT / "tests" / path.relative_to("nllb_cli").with_name(f"test_{path.name}")
    assert mirror.exists(), f"{mirror.relative_to(ROOT)} is missing"


def test_what_needs_a_gpu_is_skipped_where_none_is():
    words = ["-m", "pytest", "-m", "gpu", "tests/kernels/test_quantize.py"]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=hidden, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "no CUDA device" in done.stdout
    assert "failed" not in done.stdout
