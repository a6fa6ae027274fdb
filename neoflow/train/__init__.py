"""Training: the trainer, its checkpoints, its progress."""

from neoflow.train.trainer import Trainer

__all__ = ["Trainer"]
