"""Models, caches and outputs of Transformers: they walk, and their guards hold over calls. Skipped without it."""

import sys
import warnings

import torch

import state
from state import Guard, Walk, form, refusal

try:
    import transformers
except ImportError:
    print("skipped: no transformers")
    sys.exit(77)

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
assert state.load_torch()
state.cpu_is_device(1)

IDS = torch.arange(5)[None]
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100)
AUDIO = dict(SMALL, conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2)
AUDIO.update(num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
IMAGE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32)
MODELS = [
    ("GPT2LMHeadModel", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=100), dict(input_ids=IDS)),
    ("LlamaForCausalLM", SMALL, dict(input_ids=IDS)),
    ("MixtralForCausalLM", dict(SMALL, num_key_value_heads=2, num_local_experts=2), dict(input_ids=IDS)),
    ("BertForMaskedLM", SMALL, dict(input_ids=IDS)),
    (
        "T5ForConditionalGeneration",
        dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100),
        dict(input_ids=IDS, decoder_input_ids=IDS),
    ),
    ("MambaForCausalLM", dict(hidden_size=32, num_hidden_layers=2, vocab_size=100, state_size=4), dict(input_ids=IDS)),
    ("ViTForImageClassification", dict(IMAGE, patch_size=8), dict(pixel_values=torch.rand(1, 3, 32, 32))),
    (
        "ResNetForImageClassification",
        dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
        dict(pixel_values=torch.rand(1, 3, 32, 32)),
    ),
    ("Wav2Vec2ForCTC", AUDIO, dict(input_values=torch.rand(1, 2000))),
]


def make(name, settings):
    torch.manual_seed(0)
    cls = getattr(transformers, name)
    return cls(cls.config_class(**settings)).eval()


def test_models():
    for name, settings, arguments in MODELS:
        model, other = make(name, settings), make(name, settings)
        with torch.no_grad():
            model(**arguments)
            other(**arguments)
        guard = Guard(model)
        # A parametrised weight (weight norm) has a class of its own in each model.
        assert form(model) == form(other) or name.startswith("Wav2Vec2"), name
        with torch.no_grad():
            for _ in range(3):
                output = model(**arguments)
                assert guard.holds(), (name, guard.change)
        assert guard.walks == 1, name
        assert refusal(output) is None, (name, refusal(output))
        assert form(output) == form(model(**arguments)) or torch.is_grad_enabled(), name
        guards = [
            (lambda: setattr(model.config, "grape_note", 1), lambda: delattr(model.config, "grape_note")),
            (model.train, model.eval),
            (lambda: setattr(type(model), "grape_note", 1), lambda: delattr(type(model), "grape_note")),
        ]
        for change, undo in guards:
            change()
            assert not guard.holds(), name
            undo()
            assert guard.holds(), (name, guard.change)


def test_cache():
    """A cache is another signature for each length, and the same for the same length."""
    model = make("GPT2LMHeadModel", MODELS[0][1])

    def cache(length, batch=1):
        with torch.no_grad():
            return model(torch.zeros(batch, length, dtype=torch.long), use_cache=True).past_key_values

    forms = [form(cache(4)), form(cache(4)), form(cache(5)), form(cache(4, 2))]
    assert forms[0] == forms[1] and len(set(forms)) == 3
    walk = Walk(cache(4))
    assert len(walk.extents) == 4 and walk.tensor_extents == [0, 1, 2, 3]
    # One step further in place is what the call after it sees.
    kept = cache(4)
    with torch.no_grad():
        model(torch.zeros(1, 1, dtype=torch.long), past_key_values=kept, use_cache=True)
    assert form(kept) == form(cache(5))


def test_generate():
    model = make("GPT2LMHeadModel", MODELS[0][1])
    guard = Guard(model)
    expected = model.generate(IDS, max_new_tokens=4, do_sample=False, pad_token_id=0)
    if not guard.holds():  # what the first call of generate notes on the model
        guard = Guard(model)
    assert torch.equal(model.generate(IDS, max_new_tokens=4, do_sample=False, pad_token_id=0), expected)
    assert guard.holds(), guard.change


def test_time():
    """Of GPT-2 as it is: printed for who reads it, and bounded so loosely that a busy machine passes."""
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    guard = Guard(model)
    times = sorted(state.guard_time(guard.handle, 200, 0) for _ in range(9))
    cold = sorted(state.guard_time(guard.handle, 20, 32 << 20) for _ in range(5))
    with torch.no_grad():
        cache = model(IDS, use_cache=True).past_key_values
    walks = sorted(state.walk_time(cache, 200, 0) for _ in range(9))
    print(
        "GPT-2: guard %.1f us (%.1f us with cold caches), walk of its cache %.1f us, switches %.1f us"
        % (times[4], cold[2], walks[4], state.dispatch_time(1000, 0))
    )
    assert guard.walks == 1 and times[0] < 500, times


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
