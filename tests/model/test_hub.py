"""A model comes from a directory, from the hub and its cache, or is the bundled one."""

import json
import os
import pty
import subprocess
import sys
import termios
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nllb_cli.errors import ModelError, UsageError
from nllb_cli.model.hub import BUNDLED_MODEL, resolve_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {
    "model_type": "m2m_100",
    "vocab_size": 40,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8,
}
SMALL = {"config.json": json.dumps(CONFIG), "sentencepiece.bpe.model": "s", "vocab.json": "{}"}
CLIENT = """
import os, sys
from nllb_cli.errors import NllbError
from nllb_cli.model.hub import resolve_model
name, revision, with_weights = sys.argv[1:]
try:
    path = resolve_model(name, revision or None, with_weights=with_weights == "True")
    print("ok", path, *sorted(os.listdir(path)), sep="\\n")
except NllbError as error:
    print("error", int(error.exit_code), error, sep="\\n")
assert "torch" not in sys.modules
"""


class FakeHub(BaseHTTPRequestHandler):
    """Three routes of the hub: a revision's commit, its list of files, a file."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0].removeprefix("/api/models").strip("/")
        if path.count("/") < 3:
            self.answer(404, b"{}")
            return
        self.server.requests.append(path)
        owner, name, route, *rest = path.split("/")
        files = self.server.models.get(f"{owner}/{name}")
        if owner == "gated":
            self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif files is None:
            self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif rest[0] not in ("main", COMMIT):
            self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif route == "revision":
            self.answer(200, json.dumps({"id": f"{owner}/{name}", "sha": COMMIT}).encode())
        elif route == "tree":
            listed = [
                {"type": "file", "path": path, "size": len(text), "oid": f"oid-{path}"}
                for path, text in files.items()
            ]
            self.answer(200, json.dumps(listed).encode())
        else:
            self.answer(200, files[rest[1]].encode(), {"ETag": f'"oid-{rest[1]}"'})

    def answer(self, status, body, headers=()):
        self.send_response(status)
        headers = {"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT, **dict(headers)}
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    server.models, server.requests = {}, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def resolve(name, home, *, hub=None, revision="", with_weights=True, **variables):
    """Return what `resolve_model` says in a process of its own: the hub is set by variables."""
    # port 9 of this machine answers nobody: a hub that cannot be reached
    endpoint = f"http://127.0.0.1:{hub.server_port if hub else 9}"
    result = subprocess.run(
        [sys.executable, "-c", CLIENT, name, revision, str(with_weights)],
        env=os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(home)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    kind, *lines = result.stdout.splitlines()
    return kind, lines, result.stderr


def put_in_cache(home, repo, files, revision="main"):
    """Write what the hub's cache holds after a download: refs, snapshots, blobs, links."""
    folder = home / "hub" / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    for new in (folder / "refs", folder / "blobs", snapshot):
        new.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / revision).write_text(COMMIT)
    for name, text in files.items():
        (folder / "blobs" / f"oid-{name}").write_text(text)
        (snapshot / name).symlink_to(f"../../blobs/oid-{name}")
    return snapshot


def test_flag_over_variable_over_bundled(tmp_path, monkeypatch):
    flag, variable = tmp_path / "flag", tmp_path / "variable"
    flag.mkdir()
    variable.mkdir()
    monkeypatch.setenv("NLLB_MODEL", str(variable))
    assert resolve_model(str(flag)) == flag
    assert resolve_model(None) == variable
    monkeypatch.setenv("NLLB_MODEL", "")
    assert resolve_model(None) == BUNDLED_MODEL
    monkeypatch.delenv("NLLB_MODEL")
    assert resolve_model(None) == BUNDLED_MODEL
    assert (BUNDLED_MODEL / "config.json").is_file()


@pytest.mark.parametrize(
    "name",
    [
        "./gone",
        "/gone/too",
        "~/gone",
        "~nobody-of-that-name/gone",
        "a/b/c",
        "gone\\win",
        "./" + "x" * 5000,
    ],
    ids=lambda name: name[:10],
)
def test_a_path_that_is_not_there_does_not_reach_for_the_hub(name):
    with pytest.raises(ModelError, match="no such directory; --model takes one, or a hub id"):
        resolve_model(name)


def test_a_directory_that_one_may_not_read_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(ModelError, match="you may not read it"):
        resolve_model(str(tmp_path))


def test_a_revision_of_a_directory_is_a_contradiction(tmp_path):
    with pytest.raises(UsageError, match="--revision v1: goes with a hub id"):
        resolve_model(str(tmp_path), "v1")


def test_only_the_files_needed_come_and_safetensors_before_bin(hub, tmp_path):
    weights = {"model.safetensors": "w", "pytorch_model.bin": "w"}
    others = {"rust_model.ot": "r", "README.md": "r", "training_args.bin": "t", "tf_model.h5": "h"}
    hub.models["org/both"] = SMALL | weights | others
    kind, (path, *files), stderr = resolve("org/both", tmp_path, hub=hub)
    assert kind == "ok"
    assert files == sorted([*SMALL, "model.safetensors"])
    assert Path(path).name == COMMIT
    assert stderr == ""  # no progress where nobody watches
    # the second run finds all in the cache: the hub is asked for its commit, no more
    hub.requests.clear()
    assert resolve("org/both", tmp_path, hub=hub)[1] == [path, *files]
    assert set(hub.requests) == {"org/both/revision/main"}


def test_progress_stays_away_from_what_is_cached(hub, tmp_path):
    hub.models["org/model"] = SMALL | {"model.safetensors": "w"}
    resolve("org/model", tmp_path, hub=hub)
    # a busy machine may take longer than the second that a bar waits
    patience = "import nllb_cli.model.hub as hub; hub.BAR_DELAY_S = 60.0"
    terminal, stderr = pty.openpty()
    termios.tcsetwinsize(stderr, (24, 90))  # without a width, a bar shows nothing anyway
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    subprocess.run(
        [sys.executable, "-c", patience + CLIENT, "org/model", "", "True"],
        env=os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=stderr,
        check=True,
        timeout=60,
    )
    os.write(stderr, b"|")
    assert os.read(terminal, 4096) == b"|"
    os.close(stderr)
    os.close(terminal)


def test_sharded_bin_when_there_is_nothing_else(hub, tmp_path):
    shards = {f"pytorch_model-0000{n}-of-00002.bin": "w" for n in (1, 2)}
    index = {"pytorch_model.bin.index.json": "{}"}
    hub.models["org/bin"] = SMALL | shards | index
    _, (_, *files), _ = resolve("org/bin", tmp_path, hub=hub)
    assert files == sorted([*SMALL, *shards, *index])


def test_languages_can_be_checked_before_the_weights_come(hub, tmp_path):
    hub.models["org/both"] = SMALL | {"model.safetensors": "w"}
    _, (_, *files), _ = resolve("org/both", tmp_path, hub=hub, with_weights=False)
    assert files == sorted(SMALL)


def test_another_architecture_is_refused_before_its_weights_come(hub, tmp_path):
    config = json.dumps(CONFIG | {"model_type": "nllb-moe"})
    hub.models["org/moe"] = SMALL | {"config.json": config, "model.safetensors": "w"}
    kind, (code, text), _ = resolve("org/moe", tmp_path, hub=hub)
    assert (kind, code) == ("error", "4")
    assert "NLLB-MoE" in text
    assert not any("model.safetensors" in request for request in hub.requests)


@pytest.mark.parametrize(
    ("name", "revision", "expected"),
    [
        ("org/none", "", "neither a directory nor a hub id that you may see"),
        ("gated/model", "", "asks for your consent; give it at http"),
        ("org/model", "v9", "org/model: the hub has no revision v9"),
        ("two words", "", "neither a directory nor a hub id such as"),
        ("x" * 5000, "", "neither a directory nor a hub id such as"),
    ],
)
def test_what_the_hub_refuses_is_one_line(hub, tmp_path, name, revision, expected):
    hub.models["org/model"] = SMALL
    kind, lines, stderr = resolve(name, tmp_path, hub=hub, revision=revision)
    assert (kind, len(lines), lines[0]) == ("error", 2, "4")
    assert expected in lines[1]
    assert "Traceback" not in stderr


@pytest.mark.parametrize("offline", ["0", "1"], ids=["unreachable", "switched off"])
@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_cached_model_loads_without_network_and_writes_nothing(tmp_path, offline, weights):
    snapshot = put_in_cache(tmp_path, "org/model", SMALL | {weights: "w"})
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    for path in before:
        if path.is_dir():
            path.chmod(0o555)  # no help against root, hence the comparison
    kind, (path, *files), _ = resolve("org/model", tmp_path, HF_HUB_OFFLINE=offline)
    for directory in before:
        if directory.is_dir():
            directory.chmod(0o755)
    assert (kind, path, files) == ("ok", str(snapshot), sorted([*SMALL, weights]))
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_cached_revision_loads_without_network(tmp_path):
    snapshot = put_in_cache(tmp_path, "org/model", SMALL | {"model.safetensors": "w"}, "v1")
    for revision in ("v1", COMMIT):
        _, (path, *_), _ = resolve("org/model", tmp_path, revision=revision, HF_HUB_OFFLINE="1")
        assert path == str(snapshot)


@pytest.mark.parametrize(
    ("offline", "expected"),
    [("1", "while HF_HUB_OFFLINE is set; unset it"), ("0", "the hub cannot be reached (Connect")],
)
def test_not_cached_and_no_network_is_one_line(tmp_path, offline, expected):
    kind, lines, _ = resolve("org/model", tmp_path, HF_HUB_OFFLINE=offline)
    assert (kind, len(lines), lines[0]) == ("error", 2, "4")
    assert expected in lines[1]


def test_an_interrupted_download_is_not_taken_for_a_model(hub, tmp_path):
    hub.models["org/model"] = SMALL | {"model.safetensors": "w"}
    resolve("org/model", tmp_path, hub=hub, with_weights=False)
    kind, lines, _ = resolve("org/model", tmp_path)
    assert (kind, lines[0]) == ("error", "4")
    assert "not complete in the cache" in lines[1]


@pytest.mark.parametrize("name", ["nllb-200-distilled-600M", "m2m100_418M"])
def test_a_name_without_its_owner_is_told_before_the_hub_is_asked(name):
    with pytest.raises(ModelError, match=f"did you mean the hub's facebook/{name}\\?"):
        resolve_model(name)
