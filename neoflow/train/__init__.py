"""Training: the trainer, its checkpoints, its progress."""

from neoflow.train.records import EpochRecord, History, StepRecord
from neoflow.train.stopping import EarlyStopping
from neoflow.train.trainer import Trainer

__all__ = ["EarlyStopping", "EpochRecord", "History", "StepRecord", "Trainer"]
