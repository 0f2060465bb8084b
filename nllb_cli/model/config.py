"""What the checkpoint is, read from its config.json."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape and ids of an M2M-100 architecture model."""

    vocab_size: int  # rows of the embedding in the checkpoint
    d_model: int  # E
    encoder_layers: int
    decoder_layers: int  # L
    encoder_heads: int
    decoder_heads: int  # H
    encoder_ffn: int
    decoder_ffn: int  # F
    scale_embedding: bool = True
    max_positions: int = 1024
    bos_id: int = 0
    pad_id: int = 1
    eos_id: int = 2
    unk_id: int = 3
    decoder_start_id: int = 2

    @property
    def head_size(self) -> int:
        """D of the decoder."""
        return self.d_model // self.decoder_heads

    @property
    def padded_vocab_size(self) -> int:
        """`vocab_size` rounded up to a multiple of 128, which keeps the lm_head product fast."""
        return -(-self.vocab_size // 128) * 128
