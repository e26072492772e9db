"""Architectures of torchvision and transformers, of drawn sizes: configurations alone, nothing is downloaded."""

import functools
import random

import torch


class Tensors(torch.nn.Module):
    """A module of transformers as a function of tensors that returns its last hidden state."""

    def __init__(self, module, name, **fixed):
        super().__init__()
        self.module, self.name, self.fixed = module, name, fixed

    def forward(self, x):
        return self.module(**{self.name: x}, **self.fixed).last_hidden_state


def torchvision_families():
    """{name: function of random.Random that returns (module, inputs)}; throws ImportError."""
    from torchvision import models
    from torchvision.models import convnext, efficientnet, regnet, resnet, swin_transformer

    def image(r, least=24, most=40, multiple=8):
        return (torch.randn(r.choice([1, 2]), 3, *(multiple * r.randint(least // multiple, most // multiple)
                                                   for _ in range(2))),)

    def resnets(block, r, **more):
        return models.ResNet(block, [r.randint(1, 2), 1, 1, 1], num_classes=r.randint(3, 9), **more), image(r)

    def mobilenet(maker, r):
        return maker(width_mult=r.choice([0.25, 0.35]), num_classes=5, dropout=0.0), image(r)

    def mnasnet(r):
        # Of smaller images the last statistics are of two values: eager's own gradients are 3.3 times their size off those in f64.
        return models.MNASNet(r.choice([0.25, 0.35]), num_classes=5, dropout=0.0), image(r, 64, 96, 32)

    def shufflenet(r):
        return models.ShuffleNetV2([1, 2, 1], [8, *(4 * r.randint(2, 4) * n for n in (1, 2, 3)), 32], num_classes=5), image(r, 32)

    def squeezenet(r):
        return models.SqueezeNet(r.choice(["1_0", "1_1"]), num_classes=5, dropout=0.0), image(r, 32)

    def densenet(r):
        return models.DenseNet(r.choice([4, 6]), (r.randint(1, 2), 2), 8, num_classes=5), image(r)

    def efficient(r):
        block = functools.partial(efficientnet.MBConvConfig, width_mult=1.0, depth_mult=1.0)
        layers = [block(1, 3, 1, 8, 8, 1), block(r.choice([2, 4]), r.choice([3, 5]), 2, 8, 16, r.randint(1, 2))]
        return models.EfficientNet(layers, 0.0, stochastic_depth_prob=0.0, num_classes=5), image(r)

    def next_(r):
        block, c = convnext.CNBlockConfig, 8 * r.randint(1, 2)
        return models.ConvNeXt([block(c, 2 * c, r.randint(1, 2)), block(2 * c, None, 1)], 0.0, num_classes=5), image(r, 32)

    def reg(r):
        params = regnet.BlockParams([1, r.randint(1, 2)], [16, 32], [8, 16], [1.0, 1.0], [2, 2],
                                    r.choice([None, 0.25]))
        return models.RegNet(params, num_classes=5, stem_width=8), image(r)

    def vit(r):
        heads = r.randint(1, 3)
        return (models.VisionTransformer(16, 4, r.randint(1, 2), heads, 8 * heads, 24, num_classes=5),
                (torch.randn(2, 3, 16, 16),))

    def swin(version, r):
        block = getattr(swin_transformer, f"SwinTransformerBlock{version}")
        merging = getattr(swin_transformer, f"PatchMerging{version}")
        return (models.SwinTransformer([2, 2], 16, [2, 1], [1, 2], [r.choice([2, 4])] * 2, 2.0, stochastic_depth_prob=0.0,
                                       num_classes=5, block=block, downsample_layer=merging), (torch.randn(1, 3, 16, 16),))

    return {
        "resnet": functools.partial(resnets, resnet.BasicBlock),
        "resnet-bottleneck": functools.partial(resnets, resnet.Bottleneck),
        "resnext": functools.partial(resnets, resnet.Bottleneck, groups=4, width_per_group=4),
        "wide-resnet": functools.partial(resnets, resnet.Bottleneck, width_per_group=128),
        "mobilenet-v2": functools.partial(mobilenet, models.mobilenet_v2),
        "mobilenet-v3": functools.partial(mobilenet, models.mobilenet_v3_small),
        "mnasnet": mnasnet, "shufflenet-v2": shufflenet, "squeezenet": squeezenet, "densenet": densenet,
        "efficientnet": efficient, "convnext": next_, "regnet": reg, "vit": vit,
        "swin": functools.partial(swin, ""), "swin-v2": functools.partial(swin, "V2"),
    }


def transformers_families():
    import transformers as t

    def words(r, count=31):
        return (torch.randint(0, count, (r.choice([1, 2]), r.randint(4, 9))),)

    def text(config, model, r, gives=None, **names):
        """`names`: of the config's sizes, where they have others."""
        heads = r.randint(1, 3)
        width, layers = 8 * heads, r.randint(1, 2)
        sizes = {names.get("width", "hidden_size"): width, names.get("layers", "num_hidden_layers"): layers,
                 names.get("heads", "num_attention_heads"): heads, "vocab_size": 31}
        inner = names.get("inner", "intermediate_size")
        if inner:
            sizes[inner] = 4 * r.randint(3, 10)
        return config, model, sizes, gives

    def made(spec, r, more, name="input_ids", inputs=None, **fixed):
        config, model, sizes, _ = spec
        configured = getattr(t, config)(**sizes, **more)
        configured._attn_implementation = r.choice(["sdpa", "eager"])
        try:
            module = getattr(t, model)(configured)
        except ValueError:  # it has no other
            configured._attn_implementation = "eager"
            module = getattr(t, model)(configured)
        return Tensors(module, name, **fixed), inputs or words(r)

    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

    def bert_like(config, model, r, **more):
        return made(text(config, model, r), r, {**quiet, "max_position_embeddings": 16, **more})

    def llama_like(config, model, r, **more):
        spec = text(config, model, r)
        heads = spec[2]["num_attention_heads"]
        kv = r.choice([h for h in (1, heads) if heads % h == 0])
        return made(spec, r, {"num_key_value_heads": kv, "max_position_embeddings": 16, **more}, use_cache=False)

    def gpt2(r):
        spec = text("GPT2Config", "GPT2Model", r, width="n_embd", layers="n_layer", heads="n_head", inner="n_inner")
        return made(spec, r, {"n_positions": 16, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, use_cache=False)

    def distilbert(r):
        spec = text("DistilBertConfig", "DistilBertModel", r, width="dim", layers="n_layers", heads="n_heads", inner="hidden_dim")
        return made(spec, r, {"max_position_embeddings": 16, "dropout": 0.0, "attention_dropout": 0.0})

    def opt(r):
        spec = text("OPTConfig", "OPTModel", r, inner="ffn_dim")
        return made(spec, r, {"max_position_embeddings": 16, "dropout": 0.0, "word_embed_proj_dim": spec[2]["hidden_size"],
                              "pad_token_id": 1}, use_cache=False)

    def neox(r):
        return made(text("GPTNeoXConfig", "GPTNeoXModel", r), r, {"max_position_embeddings": 16}, use_cache=False)

    def bloom(r):
        spec = text("BloomConfig", "BloomModel", r, layers="n_layer", heads="n_head", inner=None)
        return made(spec, r, {}, use_cache=False)

    def t5(r):
        heads = r.randint(1, 3)
        config = t.T5Config(vocab_size=31, d_model=8 * heads, d_kv=8, d_ff=24, num_layers=1, num_heads=heads, dropout_rate=0.0)
        return Tensors(t.T5EncoderModel(config), "input_ids"), words(r)

    def vision(config, model, r, **more):
        heads = r.randint(1, 3)
        configured = getattr(t, config)(hidden_size=8 * heads, num_hidden_layers=1, num_attention_heads=heads,
                                        intermediate_size=20, image_size=16, patch_size=r.choice([4, 8]), **more)
        return Tensors(getattr(t, model)(configured), "pixel_values"), (torch.randn(2, 3, 16, 16),)

    def whisper(r):
        config = t.WhisperConfig(d_model=16, encoder_layers=1, encoder_attention_heads=r.choice([1, 2]), encoder_ffn_dim=24,
                                 num_mel_bins=6, max_source_positions=10, dropout=0.0, decoder_layers=1)
        return Tensors(t.models.whisper.modeling_whisper.WhisperEncoder(config), "input_features"), (torch.randn(1, 6, 20),)

    part = functools.partial
    return {
        "bert": part(bert_like, "BertConfig", "BertModel"), "roberta": part(bert_like, "RobertaConfig", "RobertaModel"),
        "electra": part(bert_like, "ElectraConfig", "ElectraModel", embedding_size=12),
        "albert": part(bert_like, "AlbertConfig", "AlbertModel", embedding_size=12),
        "llama": part(llama_like, "LlamaConfig", "LlamaModel"), "mistral": part(llama_like, "MistralConfig", "MistralModel"),
        "qwen2": part(llama_like, "Qwen2Config", "Qwen2Model"), "gpt2": gpt2, "distilbert": distilbert, "opt": opt,
        "gpt-neox": neox, "bloom": bloom, "t5-encoder": t5,
        "vit-hf": part(vision, "ViTConfig", "ViTModel", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
        "deit": part(vision, "DeiTConfig", "DeiTModel", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
        "clip-vision": part(vision, "CLIPVisionConfig", "CLIPVisionModel"), "whisper-encoder": whisper,
    } | {name: make for name, (make, model) in more_transformers(bert_like, llama_like, vision, made, text, quiet).items()
         if hasattr(t, model)}


def more_transformers(bert_like, llama_like, vision, made, text, quiet):
    """{name: (function of random.Random, the model's name)}"""
    part = functools.partial
    activations = ("gelu", "gelu_new", "relu", "silu", "gelu_pytorch_tanh", "quick_gelu")

    def encoder(name, r, **more):
        return bert_like(f"{name}Config", f"{name}Model", r, hidden_act=r.choice(activations), pad_token_id=1, **more)

    def decoder(name, r, **more):
        return llama_like(f"{name}Config", f"{name}Model", r, hidden_act=r.choice(activations),
                          head_dim=8, pad_token_id=0, **more)

    def seq2seq(name, r, **more):
        heads = r.randint(1, 3)
        sizes = {"vocab_size": 31, "d_model": 8 * heads, "encoder_layers": 1, "decoder_layers": 1,
                 "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": 4 * r.randint(3, 10),
                 "decoder_ffn_dim": 4 * r.randint(3, 10), "max_position_embeddings": 16, "dropout": 0.0,
                 "attention_dropout": 0.0, "activation_function": r.choice(activations),
                 "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, **more}
        ids = torch.randint(2, 31, (r.choice([1, 2]), r.randint(4, 9)))
        return made((f"{name}Config", f"{name}Model", sizes, None), r, {}, inputs=(ids,), decoder_input_ids=ids,
                    use_cache=False)

    def of_sizes(name, r, inputs=None, **sizes):
        return made((f"{name}Config", f"{name}Model", {"vocab_size": 31, **sizes}, None), r, {}, inputs=inputs, use_cache=False)

    def gptj(name, r):
        heads = r.randint(1, 3)
        return of_sizes(name, r, n_embd=8 * heads, n_layer=1, n_head=heads, rotary_dim=r.choice([4, 8]), n_positions=16,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)

    def falcon(name, r):
        heads = r.randint(1, 3)
        return of_sizes(name, r, hidden_size=8 * heads, num_hidden_layers=1, num_attention_heads=heads,
                        multi_query=r.choice([True, False]), alibi=r.choice([True, False]), parallel_attn=r.choice([True, False]))

    def seen(name, r, **more):
        quiet_of = {**quiet, "hidden_act": r.choice(activations[:4]), **more}
        return vision(f"{name}Config", f"{name}Model", r, **quiet_of)

    def heard(name, r):
        heads = r.randint(1, 3)
        sizes = {"hidden_size": 8 * heads, "num_hidden_layers": 1, "num_attention_heads": heads, "intermediate_size": 20,
                 "conv_dim": [8, 8], "conv_kernel": [5, 3], "conv_stride": [3, 2], "num_conv_pos_embeddings": 4,
                 "num_conv_pos_embedding_groups": heads, "num_feat_extract_layers": 2, "layerdrop": 0.0, "hidden_dropout": 0.0,
                 "attention_dropout": 0.0, "activation_dropout": 0.0, "feat_proj_dropout": 0.0, "apply_spec_augment": False}
        return made((f"{name}Config", f"{name}Model", sizes, None), r, {}, name="input_values",
                    inputs=(torch.randn(1, r.randint(80, 120)),))

    def staged(name, r, **sizes):
        return (Tensors(getattr(__import__("transformers"), f"{name}Model")(
            getattr(__import__("transformers"), f"{name}Config")(**sizes)), "pixel_values"), (torch.randn(1, 3, 32, 32),))

    out = {name.lower(): (part(encoder, name), f"{name}Model") for name in
           ("Camembert", "XLMRoberta", "MPNet", "Ernie", "MegatronBert", "LayoutLM", "Splinter", "Data2VecText",
            "RobertaPreLayerNorm", "Deberta", "DebertaV2", "ConvBert", "RemBert", "NomicBert", "ModernBert", "RoFormer")}
    out |= {name.lower(): (part(decoder, name), f"{name}Model") for name in
            ("Gemma", "Gemma2", "Phi", "Phi3", "Qwen3", "Olmo", "Olmo2", "StableLm", "Starcoder2", "Cohere", "Granite",
             "Nemotron", "Persimmon", "SmolLM3", "Helium", "Glm")}
    out |= {name.lower(): (part(seq2seq, name), f"{name}Model") for name in
            ("Bart", "MBart", "Pegasus", "Marian", "BlenderbotSmall", "M2M100", "PLBart")}
    out |= {name.lower(): (part(seen, name), f"{name}Model") for name in
            ("Beit", "Dinov2", "Data2VecVision", "ViTMSN", "SiglipVision", "Ijepa", "Dinov2WithRegisters")}
    out |= {name.lower(): (part(heard, name), f"{name}Model") for name in ("Wav2Vec2", "Hubert", "SEW", "UniSpeech")}
    out |= {"gptj": (part(gptj, "GPTJ"), "GPTJModel"), "codegen": (part(gptj, "CodeGen"), "CodeGenModel"),
            "falcon": (part(falcon, "Falcon"), "FalconModel"),
            "swin-hf": (part(staged, "Swin", image_size=32, patch_size=4, embed_dim=8, depths=[1, 2], num_heads=[1, 2],
                             window_size=4, drop_path_rate=0.0), "SwinModel"),
            "segformer": (part(staged, "Segformer", num_encoder_blocks=2, depths=[1, 1], hidden_sizes=[8, 16],
                               num_attention_heads=[1, 2], sr_ratios=[2, 1], patch_sizes=[7, 3], strides=[4, 2],
                               mlp_ratios=[2, 2], drop_path_rate=0.0, hidden_dropout_prob=0.0,
                               attention_probs_dropout_prob=0.0), "SegformerModel"),
            "convnextv2": (part(staged, "ConvNextV2", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2), "ConvNextV2Model"),
            "poolformer": (part(staged, "PoolFormer", hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], drop_path_rate=0.0),
                           "PoolFormerModel"),
            "focalnet": (part(staged, "FocalNet", image_size=32, embed_dim=8, depths=[1, 1], focal_levels=[2, 2],
                              focal_windows=[3, 3], drop_path_rate=0.0), "FocalNetModel")}
    return out


def families():
    """Those of the packages that are installed."""
    out = {}
    for of in (torchvision_families, transformers_families):
        try:
            out.update(of())
        except ImportError:
            pass
    return out


def drawn(name, seed):
    """(module, inputs): normalisations have statistics and weights that are not the usual ones."""
    torch.manual_seed(seed)
    module, inputs = families()[name](random.Random(f"{name} {seed}"))
    for m in module.modules():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.uniform_(m.running_mean, -0.3, 0.3)
            torch.nn.init.uniform_(m.running_var, 0.5, 1.5)
    return module, inputs
