"""Engines for worker processes that are slow, die or fail when a test wants it."""

import os
import time
from functools import partial

import torch

from nllb_cli.engine.engine import PlainEngine
from nllb_cli.errors import DeviceError
from nllb_cli.model.weights import load_parameters
from nllb_cli.options import DecodeOptions


class Troubled:
    """An engine that sleeps after each result, and meets its fate at a source with some token."""

    def __init__(self, engine, delay_s, fate):
        self.engine, self.delay_s = engine, delay_s
        self.token, self.fate = fate or (None, "")

    def translate(self, source):
        self.source = source
        for result in self.engine.translate(self):
            time.sleep(self.delay_s)
            yield result

    @property
    def is_exhausted(self):
        return self.source.is_exhausted

    def take(self, wait):
        batch = self.source.take(wait)
        if batch is not None and any(self.token in s.source_tokens for s in batch.segments):
            if self.fate == "die":
                os._exit(7)
            raise {"fail": ValueError, "refuse": DeviceError}[self.fate]("this token\nis bad")
        return batch


def make_engine(path, delay_s=0.0, fate=None, notes=()):
    torch.set_num_threads(1)
    parameters = load_parameters(path, torch.device("cpu"), torch.float32)
    engine = PlainEngine(parameters, DecodeOptions(2), 95, max_batch_rows=4)
    return Troubled(engine, delay_s, fate), list(notes)


def refuse(_path):
    raise DeviceError("does not fit: 2 GiB needed")


def die(_path):
    os._exit(9)


def maker(path, **trouble):
    return partial(make_engine, path, **trouble)
