"""Models of three libraries that are recorded and replayed with random weights in test_models.py.

Each is as small as its family comes and takes small inputs: what is tested is which operators it calls and in
which order, not how much they compute. `full` cases run with --full only. A model that cannot be replayed is
listed with the operator that its refusal must name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelCase:
    library: str
    name: str
    build: Callable[[], nn.Module]
    # Fresh random inputs at every call, always of the same shapes.
    inputs: Callable[[], tuple[tuple[Any, ...], Mapping[str, Any]]]
    full: bool = True
    refused: str | None = None

    def __str__(self) -> str:
        return f"{self.library}-{self.name}"


def pictures(size: int, batch: int = 1, channels: int = 3) -> Callable[[], tuple[tuple[Tensor], dict]]:
    return lambda: ((torch.randn(batch, channels, size, size),), {})


def videos(frames: int, size: int) -> Callable[[], tuple[tuple[Tensor], dict]]:
    return lambda: ((torch.randn(1, 3, frames, size, size),), {})


# ------------------------------------------------------------------------------------------------ torchvision


def torchvision_case(name: str, inputs=None, full: bool = True, refused: str | None = None, **options):
    def build() -> nn.Module:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options)

    return ModelCase("torchvision", name, build, inputs or pictures(64), full, refused)


NO_BACKBONE = {"weights_backbone": None}

TORCHVISION = [
    # classification
    torchvision_case("alexnet"),
    torchvision_case("convnext_tiny", full=False),
    torchvision_case("densenet121", full=False),
    torchvision_case("efficientnet_b0", full=False),
    torchvision_case("efficientnet_v2_s"),
    torchvision_case("googlenet", full=False, aux_logits=False, init_weights=False),
    torchvision_case("inception_v3", pictures(96), aux_logits=False, init_weights=False),
    torchvision_case("maxvit_t", pictures(224)),
    torchvision_case("mnasnet0_5"),
    torchvision_case("mobilenet_v2"),
    torchvision_case("mobilenet_v3_small", full=False),
    torchvision_case("regnet_x_400mf"),
    torchvision_case("regnet_y_400mf"),
    torchvision_case("resnet18", full=False),
    torchvision_case("resnet50"),
    torchvision_case("resnext50_32x4d"),
    torchvision_case("shufflenet_v2_x0_5", full=False),
    torchvision_case("squeezenet1_1"),
    torchvision_case("swin_t", full=False),
    torchvision_case("swin_v2_t"),
    torchvision_case("vgg11_bn"),
    torchvision_case("vit_b_32", image_size=64),
    torchvision_case("wide_resnet50_2"),
    # segmentation
    torchvision_case("lraspp_mobilenet_v3_large", full=False, **NO_BACKBONE),
    torchvision_case("deeplabv3_mobilenet_v3_large", **NO_BACKBONE),
    torchvision_case("fcn_resnet50", **NO_BACKBONE),
    # video
    torchvision_case("r3d_18", videos(4, 32), full=False),
    torchvision_case("mc3_18", videos(4, 32)),
    torchvision_case("swin3d_t", videos(4, 32)),
    # detection: how many boxes come out depends on the picture
    torchvision_case(
        "ssdlite320_mobilenet_v3_large",
        lambda: (([torch.rand(3, 64, 64)],), {}),
        full=False,
        refused="aten::index",
        **NO_BACKBONE,
    ),
]


# ------------------------------------------------------------------------------------------------------- timm


def timm_case(name: str, inputs=None, full: bool = True, refused: str | None = None, **options):
    def build() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, **options)

    return ModelCase("timm", name, build, inputs or pictures(64), full, refused)


TIMM = [
    # convolutions
    timm_case("convnext_atto", full=False),
    timm_case("convnextv2_atto"),
    timm_case("cspresnet50"),
    timm_case("dla46_c"),
    timm_case("efficientnet_lite0"),
    timm_case("ese_vovnet19b_dw"),
    timm_case("gernet_s"),
    timm_case("ghostnet_050", full=False),
    timm_case("hrnet_w18_small", full=False),
    timm_case("inception_next_atto"),
    timm_case("lcnet_050"),
    timm_case("mobilenetv4_conv_small", full=False),
    timm_case("mobileone_s0"),
    timm_case("nf_resnet26"),
    timm_case("regnetx_002"),
    timm_case("repvgg_a0", full=False),
    timm_case("res2net50_14w_8s"),
    timm_case("resnest14d"),
    timm_case("rexnet_100"),
    timm_case("selecsls42b"),
    timm_case("skresnet18"),
    timm_case("starnet_s1"),
    timm_case("tf_efficientnetv2_b0"),
    timm_case("tinynet_e"),
    # transformers
    timm_case("cait_xxs24_224", img_size=64),
    timm_case("coat_lite_tiny", img_size=64),
    timm_case("crossvit_tiny_240", pictures(240)),
    timm_case("deit_tiny_patch16_224", img_size=64),
    timm_case("eva02_tiny_patch14_224", pictures(56), img_size=56),
    timm_case("swin_tiny_patch4_window7_224", pictures(56), img_size=56),
    timm_case("vit_tiny_patch16_224", full=False, img_size=64),
    timm_case("xcit_nano_12_p16_224", full=False, img_size=64),
    # between convolutions and attention
    timm_case("edgenext_xx_small"),
    timm_case("efficientformer_l1", pictures(224)),
    timm_case("efficientvit_b0"),
    timm_case("fastvit_t8"),
    timm_case("levit_128s", pictures(224)),
    timm_case("mobilevit_xxs", full=False),
    timm_case("poolformer_s12", full=False),
    timm_case("pvt_v2_b0"),
    timm_case("repvit_m0_9"),
    timm_case("tiny_vit_5m_224", pictures(224)),
    # MLPs and a recurrent one
    timm_case("mixer_s32_224", full=False, img_size=64),
    timm_case("gmlp_s16_224", img_size=64),
    timm_case("resmlp_12_224", img_size=64),
    timm_case("sequencer2d_s", img_size=64),
]


# ----------------------------------------------------------------------------------------------- transformers

VOCABULARY = 99


def tokens(length: int = 12, batch: int = 2, **more: Callable[[], Any]):
    """input_ids, and further keyword arguments made anew at every call."""

    def make() -> tuple[tuple, dict[str, Any]]:
        ids = torch.randint(5, VOCABULARY, (batch, length))
        return (), {"input_ids": ids, **{name: value() for name, value in more.items()}}

    return make


def padding_mask(length: int = 12) -> Tensor:
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, -3:] = 0
    return mask


def attention_bias(length: int = 12) -> Tensor:
    """The same as padding_mask, in the form that is added to the scores."""
    hidden = padding_mask(length)[:, None, None, :] == 0
    return torch.zeros(2, 1, length, length).masked_fill(hidden, -1e9)


def token_ids(length: int = 7) -> Tensor:
    return torch.randint(5, VOCABULARY, (2, length))


def transformers_case(
    model: str,
    config: str,
    inputs=None,
    full: bool = True,
    refused: str | None = None,
    part: str = "",
    name: str = "",
    **options,
):
    """`part` names the submodule that is meant; `name` tells two cases of one class apart."""

    def build() -> nn.Module:
        import transformers

        module = getattr(transformers, model)(getattr(transformers, config)(**options))
        return module.get_submodule(part)

    return ModelCase("transformers", name or model, build, inputs or tokens(), full, refused)


ENCODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
DECODER = {**ENCODER, "num_key_value_heads": 2, "use_cache": False}
PICTURE_ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}

CLIP_TEXT = {**ENCODER, "projection_dim": 16}
CLIP_PICTURE = {**PICTURE_ENCODER, "projection_dim": 16}

TRANSFORMERS = [
    # encoders of text
    transformers_case("BertModel", "BertConfig", full=False, **ENCODER),
    transformers_case(
        "BertForSequenceClassification",
        "BertConfig",
        tokens(attention_mask=attention_bias),
        **ENCODER,
    ),
    # Asks whether anything is masked at all, to choose a faster kernel.
    transformers_case(
        "BertModel",
        "BertConfig",
        tokens(attention_mask=padding_mask),
        full=False,
        refused="aten::_local_scalar_dense",
        name="BertModel-padding",
        **ENCODER,
    ),
    transformers_case("RobertaModel", "RobertaConfig", **ENCODER),
    transformers_case("AlbertModel", "AlbertConfig", embedding_size=16, **ENCODER),
    transformers_case("ElectraModel", "ElectraConfig", embedding_size=16, **ENCODER),
    # Looks for padding in input_ids, only to warn.
    transformers_case(
        "DebertaV2Model",
        "DebertaV2Config",
        refused="aten::_local_scalar_dense",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        **ENCODER,
    ),
    transformers_case(
        "DistilBertModel",
        "DistilBertConfig",
        full=False,
        vocab_size=VOCABULARY,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        max_position_embeddings=64,
    ),
    # decoders of text
    transformers_case(
        "GPT2LMHeadModel",
        "GPT2Config",
        full=False,
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        use_cache=False,
    ),
    transformers_case("LlamaForCausalLM", "LlamaConfig", full=False, **DECODER),
    transformers_case("MistralForCausalLM", "MistralConfig", sliding_window=8, **DECODER),
    transformers_case("Qwen2ForCausalLM", "Qwen2Config", **DECODER),
    transformers_case("GemmaForCausalLM", "GemmaConfig", head_dim=8, **DECODER),
    transformers_case("PhiForCausalLM", "PhiConfig", **DECODER),
    transformers_case("GPTNeoXForCausalLM", "GPTNeoXConfig", use_cache=False, **ENCODER),
    transformers_case(
        "OPTForCausalLM",
        "OPTConfig",
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
        use_cache=False,
    ),
    transformers_case(
        "MambaForCausalLM",
        "MambaConfig",
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=4,
        use_cache=False,
    ),
    transformers_case(
        "MixtralForCausalLM",
        "MixtralConfig",
        num_local_experts=4,
        num_experts_per_tok=2,
        **DECODER,
    ),
    # both
    transformers_case(
        "T5Model",
        "T5Config",
        tokens(decoder_input_ids=token_ids),
        full=False,
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        use_cache=False,
    ),
    transformers_case(
        "BartModel",
        "BartConfig",
        tokens(decoder_input_ids=token_ids),
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        use_cache=False,
    ),
    # pictures
    transformers_case("ViTModel", "ViTConfig", pictures(32), full=False, **PICTURE_ENCODER),
    transformers_case("Dinov2Model", "Dinov2Config", pictures(32), **PICTURE_ENCODER),
    transformers_case("BeitModel", "BeitConfig", pictures(32), **PICTURE_ENCODER),
    transformers_case(
        "ConvNextModel",
        "ConvNextConfig",
        pictures(32),
        hidden_sizes=[8, 16, 32, 64],
        depths=[1, 1, 2, 1],
    ),
    transformers_case(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        pictures(64),
        depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 24, 32],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=32,
    ),
    transformers_case(
        "SwinModel",
        "SwinConfig",
        pictures(32),
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[1, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    # pictures and text
    transformers_case(
        "CLIPModel",
        "CLIPConfig",
        tokens(pixel_values=lambda: torch.randn(2, 3, 32, 32)),
        full=False,
        text_config=CLIP_TEXT,
        vision_config=CLIP_PICTURE,
        projection_dim=16,
    ),
    # sound
    transformers_case(
        "WhisperModel",
        "WhisperConfig",
        lambda: ((torch.randn(1, 16, 60),), {}),
        full=False,
        part="encoder",
        name="WhisperEncoder",
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=30,
    ),
    transformers_case(
        "Wav2Vec2Model",
        "Wav2Vec2Config",
        lambda: ((torch.randn(1, 1600),), {}),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=[16] * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
    ),
]

ALL = TORCHVISION + TIMM + TRANSFORMERS

# Refused on CUDA alone, with the operator that the refusal names.
REFUSED_ON_CUDA = {
    "transformers-MixtralForCausalLM": "aten::_grouped_mm",
    "transformers-Wav2Vec2Model": "aten::rand",
}


def refused_on_cuda(case: ModelCase) -> str | None:
    return REFUSED_ON_CUDA.get(str(case), case.refused)
