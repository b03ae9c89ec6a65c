"""BERT-base (Devlin et al., 2019) on sentences of 128 tokens, and ViT-B/16 (Dosovitskiy et al., 2021)."""

import torch
from torch import Tensor, nn

from nimble.bench.workloads.kinds import CLASSES, Example, Inference, Training, torchvision_network
from nimble.bench.workloads.random_weights import enliven
from nimble.packages import need

TOKENS = 128


def bert_base(batch: int) -> Example:
    need("transformers")
    from transformers import BertConfig, BertModel

    config = BertConfig()
    return BertModel(config).eval(), (torch.randint(config.vocab_size, (batch, TOKENS)),)


def vit_b_16(batch: int) -> Example:
    model = torchvision_network("vit_b_16")().eval()
    enliven(model)
    return model, (torch.randn(batch, 3, 224, 224),)


class SentenceClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        need("transformers")
        from transformers import BertConfig, BertForSequenceClassification

        self.bert = BertForSequenceClassification(BertConfig(num_labels=CLASSES))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.bert(tokens).logits


def sentences(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randint(30_000, (batch, TOKENS)), torch.randint(CLASSES, (batch,))


WORKLOADS = [
    Inference("bert_base", bert_base),
    Inference("vit_b_16", vit_b_16),
    Training("training/bert_base", SentenceClassifier, sentences, batches=(32,), draws_random_numbers=True),
]
