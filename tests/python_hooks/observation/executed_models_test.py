"""Calls of real models come out clean from the second one on, and their guards hold; effects through PyTorch and NumPy
are found. Skipped without Transformers."""
import sys
import unittest
import warnings

import numpy
import torch
import torch.nn.functional as F

import executed
from executed import Globals, Observation

try:
    import transformers
except ImportError:
    print("skipped: no transformers")
    sys.exit(77)

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
assert executed.load_torch()

IDS = torch.arange(5)[None]
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100)
IMAGE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32)
AUDIO = dict(SMALL, conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2)
AUDIO.update(num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
MODELS = [
    ("GPT2LMHeadModel", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=100), dict(input_ids=IDS)),
    ("LlamaForCausalLM", SMALL, dict(input_ids=IDS)),
    ("MixtralForCausalLM", dict(SMALL, num_key_value_heads=2, num_local_experts=2), dict(input_ids=IDS)),
    ("BertModel", SMALL, dict(input_ids=IDS)),
    (
        "SegformerForSemanticSegmentation",
        dict(
            num_encoder_blocks=2,
            depths=[1, 1],
            hidden_sizes=[8, 16],
            num_attention_heads=[1, 2],
            sr_ratios=[2, 1],
            patch_sizes=[7, 3],
            strides=[4, 2],
            mlp_ratios=[2, 2],
            decoder_hidden_size=8,
        ),
        dict(pixel_values=torch.rand(1, 3, 32, 32)),
    ),
    (
        "T5ForConditionalGeneration",
        dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100),
        dict(input_ids=IDS, decoder_input_ids=IDS),
    ),
    ("MambaForCausalLM", dict(hidden_size=32, num_hidden_layers=2, vocab_size=100, state_size=4), dict(input_ids=IDS)),
    ("ViTModel", dict(IMAGE, patch_size=8), dict(pixel_values=torch.rand(1, 3, 32, 32))),
    (
        "ResNetModel",
        dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
        dict(pixel_values=torch.rand(1, 3, 32, 32)),
    ),
    ("Wav2Vec2ForCTC", AUDIO, dict(input_values=torch.rand(1, 2000))),
]
GENERATOR = numpy.random.default_rng(1)
WEIGHT = torch.ones(3, requires_grad=True)
MODULE = torch.nn.Linear(2, 3)
OPTIMIZER = torch.optim.SGD(MODULE.parameters(), lr=0.1)
OPTIMIZER.step()
EVENT = torch.cuda.Event()
COMPILED = torch.compile(lambda x: x + 1, backend="eager")
COMPILED(torch.ones(2))

REFUSED = [
    ("numpy.random", lambda: numpy.random.rand(3), "RandomState.rand"),
    ("numpy's global generator by map", lambda: list(map(numpy.random.normal, [1.0])), "RandomState.normal"),
    ("a generator of NumPy's", lambda: GENERATOR.normal(), "Generator.normal"),
    ("a new generator of NumPy's", lambda: numpy.random.default_rng(), "SystemRandom"),
    ("seed", lambda: torch.default_generator.manual_seed(1), "Generator.manual_seed"),
    ("random state", lambda: torch.get_rng_state(), "Generator.get_state"),
    ("backward", lambda: (WEIGHT * 2).sum().backward(), "backward()"),
    ("gradients", lambda: torch.autograd.grad((WEIGHT * 2).sum(), WEIGHT), "backward()"),
    ("a gradient", lambda: WEIGHT.grad, "uses Tensor.grad"),
    ("a gradient by getattr", lambda: getattr(WEIGHT, "gr" + "ad"), "uses Tensor.grad"),
    ("a gradient that is set", lambda: setattr(WEIGHT, "grad", None), "uses Tensor.grad"),
    ("gradients of a module", lambda: MODULE.zero_grad(), "uses Tensor.grad"),
    ("gradients that are clipped", lambda: torch.nn.utils.clip_grad_norm_(MODULE.parameters(), 1), "uses Tensor.grad"),
    ("an optimizer's step", lambda: OPTIMIZER.step(), "uses Tensor.grad"),
    ("a leaf", lambda: WEIGHT.is_leaf, "reads Tensor.is_leaf"),
    ("versions", lambda: WEIGHT._version, "reads Tensor._version"),
    ("a view's base", lambda: WEIGHT._base, "reads Tensor._base"),
    ("an address", lambda: WEIGHT.data_ptr(), "Tensor.data_ptr()"),
    ("a storage's address", lambda: WEIGHT.untyped_storage().data_ptr(), "UntypedStorage.data_ptr()"),
    ("hash of a tensor", lambda: hash(WEIGHT), "hash() of an object"),
    ("an event", lambda: EVENT.query(), "_CudaEventBase.query()"),
    ("threads", lambda: torch.get_num_threads(), "get_num_threads()"),
    ("torch.compile", lambda: COMPILED(torch.ones(2)), "torch.compile"),
]
HARMLESS = [
    ("no_grad", lambda: torch.no_grad()(lambda: torch.ones(3) + 1)()),
    ("autocast", lambda: torch.autocast("cpu").__enter__().__exit__(None, None, None)),
    ("numpy", lambda: numpy.sin(torch.ones(3).numpy()).sum()),
    ("text of a tensor", lambda: repr(WEIGHT)),
    ("scaled_dot_product_attention", lambda: F.scaled_dot_product_attention(*[torch.ones(1, 2, 3, 4)] * 3)),
    ("einsum", lambda: torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 2))),
]


def make(name, settings):
    torch.manual_seed(0)
    cls = getattr(transformers, name)
    return cls(cls.config_class(**settings)).eval()


class ModelsTest(unittest.TestCase):
    def test_calls_are_clean_and_guards_hold(self):
        for name, settings, arguments in MODELS:
            with self.subTest(name), torch.no_grad():
                model, observation = make(name, settings), Observation()
                model(**arguments)
                guard = None
                for _ in range(3):
                    observation.run(model, **arguments)
                    self.assertEqual(observation.reason, "")
                    self.assertTrue(guard is None or guard.holds(), guard and guard.change)
                    guard = Globals(observation)
                print(f"holds(): {min(guard.microseconds(200) for _ in range(9)):.2f} us")

    def test_collected_outputs(self):
        """Transformers' hooks ask a context variable whether to collect: proven without, a layer must not be
        replayed while somebody collects."""
        capturing = sys.modules.get("transformers.utils.output_capturing")
        if capturing is None:
            self.skipTest("no output_capturing")
        model, observation = make(*MODELS[3][:2]), Observation()
        layer, hidden = model.encoder.layer[0], torch.ones(1, 5, 32)
        with torch.no_grad():
            model(IDS, output_hidden_states=True)
            for _ in range(2):
                observation.run(layer, hidden)
                self.assertEqual(observation.reason, "")
            guard = Globals(observation)
            self.assertTrue(guard.holds(), guard.change)
            token = capturing._active_collector.set({"hidden_states": []})
            self.assertFalse(guard.holds())
            collecting = Observation()
            collecting.run(layer, hidden)
            other = Globals(collecting)
            collecting.run(layer, hidden)
            self.assertFalse(other.holds())
            capturing._active_collector.reset(token)
            self.assertTrue(guard.holds(), guard.change)
            observation.run(model, IDS, output_hidden_states=True)
            self.assertEqual(observation.reason, "")
            guard = Globals(observation)
            observation.run(model, IDS, output_hidden_states=True)
            self.assertTrue(guard.holds(), guard.change)

    def test_generate(self):
        model, observation = make(*MODELS[0][:2]), Observation()
        for _ in range(3):
            observation.run(model.generate, IDS, max_new_tokens=3, do_sample=False, pad_token_id=0)
        self.assertEqual(observation.reason, "")

    def test_monkey_patches(self):
        model, observation = make(*MODELS[0][:2]), Observation()
        with torch.no_grad():
            for _ in range(2):
                observation.run(model, IDS)
        guard = Globals(observation)
        gpt2 = sys.modules[type(model).__module__]
        for owner, name in (
            (F, "layer_norm"),
            (gpt2.GPT2Block, "forward"),
            (torch.nn.Module, "__call__"),
            (torch.nn.Linear, "forward"),
            (transformers.cache_utils.DynamicLayer, "update"),
            (torch.Tensor, "view"),
        ):
            with self.subTest(name):
                own = name in vars(owner)
                original = getattr(owner, name)
                self.assertTrue(guard.holds(), guard.change)
                setattr(owner, name, lambda *a, **k: None)
                self.assertFalse(guard.holds())
                setattr(owner, name, original) if own else delattr(owner, name)
                self.assertTrue(guard.holds(), guard.change)

    def test_tensors_in_globals(self):
        namespace = {"__name__": "users", "TABLE": torch.ones(3)}
        exec("def run(): return TABLE + 1", namespace)
        observation = Observation()
        observation.run(namespace["run"])
        guard = Globals(observation)
        self.assertTrue(guard.holds())
        namespace["TABLE"][0] = 2  # on the CPU the content counts
        self.assertFalse(guard.holds())
        namespace["TABLE"][0] = 1
        self.assertTrue(guard.holds())
        namespace["TABLE"] = torch.ones(4)
        self.assertFalse(guard.holds())

    def test_effects(self):
        observation = Observation()
        for name, function, expected in REFUSED:
            with self.subTest(name):
                for _ in range(2):
                    observation.run(function)
                self.assertIn(expected, observation.reason)
        for name, function in HARMLESS:
            with self.subTest(name):
                for _ in range(2):
                    observation.run(function)
                self.assertEqual(observation.reason, "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
