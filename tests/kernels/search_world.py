"""A world of random next-token tables in which searches can be run without a model."""

import torch

from nllb_cli.kernels import admission, search

EOS, PAD = 2, 1


class World:
    """Entries whose logits are a table of (entry, position, last token)."""

    def __init__(self, num_entries, V, K, num_slots, limits, device, seed=0):
        generator = torch.Generator().manual_seed(seed)
        T = max(limits) + 1
        self.K, self.V, self.T = K, V, T
        self.logits = (2 * torch.randn(num_entries, T, V, V, generator=generator)).to(device)
        C = search.num_candidates(K)
        self.C = C
        new = lambda *shape, fill=0, dtype=torch.int32: torch.full(  # noqa: E731
            shape, fill, dtype=dtype, device=device
        )
        self.state = search.SearchState(
            entry=new(num_slots, fill=-1),
            length=new(num_slots, fill=1),
            limit=new(num_slots),
            log_prob=new(num_slots, K, fill=float("nan"), dtype=torch.float32),
            final_score=new(num_slots, K, fill=float("nan"), dtype=torch.float32),
            tokens=new(num_slots, T, K, fill=77),
            indirection=new(num_slots, K, T, fill=0, dtype=torch.uint8),
        )
        self.outbox = search.Outbox(
            new(num_entries, T, fill=-9),
            new(num_entries, fill=-9),
            new(num_entries, fill=0, dtype=torch.float32),
            new(num_entries, fill=-9),
        )
        order = torch.randperm(num_slots, generator=generator).to(device, torch.int32)
        self.io = search.StepIO(
            order, new(num_slots * K), new(num_slots * K), new(num_slots, fill=-1)
        )
        self.queue = admission.Queue(
            torch.tensor([0, num_entries, 0, 0], dtype=torch.int32, device=device),
            torch.arange(num_entries, dtype=torch.int32, device=device),
            new(num_entries, fill=-1),
            new(num_entries, fill=1),
            new(num_entries, fill=1),
            torch.arange(5, num_entries + 5, dtype=torch.int32, device=device),
            (torch.arange(num_entries, device=device) % V).to(torch.int32),
            torch.tensor(limits, dtype=torch.int32, device=device),
        )
        self.source = admission.SlotSource(new(num_slots), new(num_slots), new(num_slots))

    def scores(self):
        """The candidates of every place of the batch, idle ones too."""
        entry = self.state.entry[self.io.slot_ids.long()].clamp(min=0).long()
        entry = entry.repeat_interleave(self.K)
        length = self.state.length[self.io.slot_ids.long()]
        position = length.repeat_interleave(self.K).long().clamp(max=self.T - 1)
        logits = self.logits[entry, position, self.io.next_tokens.long()]
        values, ids = logits.sort(dim=1, descending=True, stable=True)
        values, ids = values[:, : self.C].contiguous(), ids[:, : self.C].to(torch.int32)
        return values, ids.contiguous(), logits.logsumexp(1)

    def results(self):
        """Tokens, score and finish of each entry."""
        rows = zip(*(tensor.tolist() for tensor in self.outbox), strict=True)
        return [(tokens[:length], score, finish) for tokens, length, score, finish in rows]
