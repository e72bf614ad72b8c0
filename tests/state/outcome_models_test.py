"""Calls of Transformers' models, small ones: what they return and what they change in their caches."""
import importlib.util
import unittest

from outcome import PROBE, Check, Observed, aligned, main, torch

if torch and importlib.util.find_spec("transformers"):
    import transformers
else:
    transformers = None


@unittest.skipUnless(transformers, "no transformers")
class Models(Check):
    def make(self, kind, config, **sizes):
        torch.manual_seed(0)
        return getattr(transformers, kind)(getattr(transformers, config)(**sizes)).eval().requires_grad_(False)

    def gpt2(self):
        return self.make("GPT2LMHeadModel", "GPT2Config", n_layer=12, n_head=2, n_embd=8, vocab_size=32, n_positions=32,
                         bos_token_id=0, eos_token_id=1)

    @staticmethod
    def warm(layers, heads, size):
        cache = transformers.DynamicCache()
        for layer in range(layers):
            cache.update(torch.ones(1, heads, 3, size), torch.ones(1, heads, 3, size) * 2, layer)
        for layer in cache.layers:
            layer.keys, layer.values = aligned(layer.keys), aligned(layer.values)
        return cache

    @staticmethod
    def tokens(count):
        return aligned(torch.arange(count)[None])

    def test_gpt2_first_token(self):
        model = self.gpt2()
        self.check(lambda ids, cache: model(input_ids=ids, past_key_values=cache, use_cache=True),
                   lambda: (self.tokens(3), transformers.DynamicCache()), model)

    def test_gpt2_next_token(self):
        model = self.gpt2()
        self.check(lambda ids, cache: model(input_ids=ids, past_key_values=cache, use_cache=True),
                   lambda: (self.tokens(1), self.warm(12, 2, 4)), model)

    def test_gpt2_makes_its_cache(self):
        model = self.gpt2()
        self.check(lambda ids: model(input_ids=ids), lambda: (self.tokens(3),), model)

    def test_llama(self):
        model = self.make("LlamaForCausalLM", "LlamaConfig", num_hidden_layers=2, hidden_size=8, intermediate_size=16,
                          num_attention_heads=2, vocab_size=32)
        self.check(lambda ids, cache: model(input_ids=ids, past_key_values=cache, use_cache=True),
                   lambda: (self.tokens(1), self.warm(2, 2, 4)), model)

    def test_bert(self):
        model = self.make("BertModel", "BertConfig", num_hidden_layers=2, hidden_size=8, intermediate_size=16,
                          num_attention_heads=2, vocab_size=32)
        self.check(lambda ids: model(input_ids=ids), lambda: (self.tokens(4),), model)

    def test_t5(self):
        model = self.make("T5ForConditionalGeneration", "T5Config", num_layers=2, d_model=8, d_kv=4, d_ff=16,
                          num_heads=2, vocab_size=32)
        self.check(lambda ids: model(input_ids=ids, decoder_input_ids=ids), lambda: (self.tokens(4),), model)

    def test_vit(self):
        model = self.make("ViTForImageClassification", "ViTConfig", num_hidden_layers=2, hidden_size=8,
                          intermediate_size=16, num_attention_heads=2, image_size=8, patch_size=4)
        self.check(lambda pixels: model(pixel_values=pixels), lambda: (aligned(torch.ones(1, 3, 8, 8)),), model)

    def test_resnet(self):
        model = self.make("ResNetForImageClassification", "ResNetConfig", embedding_size=4, hidden_sizes=[4, 8],
                          depths=[1, 1], layer_type="basic")
        self.check(lambda pixels: model(pixel_values=pixels), lambda: (aligned(torch.ones(1, 3, 32, 32)),), model)

    def test_wav2vec2(self):
        model = self.make("Wav2Vec2Model", "Wav2Vec2Config", num_hidden_layers=2, hidden_size=16, intermediate_size=16,
                          num_attention_heads=2, conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3),
                          num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)
        self.check(lambda sound: model(sound), lambda: (aligned(torch.ones(1, 400)),), model)

    def test_time(self):
        model = self.gpt2()
        make = lambda: (self.tokens(1), self.warm(12, 2, 4))  # noqa: E731
        observed = Observed(lambda ids, cache: model(input_ids=ids, past_key_values=cache, use_cache=True), make(),
                            model)
        self.assertIsNone(observed.reason())
        cycle = [observed.copies() for _ in range(2)]
        arguments = make()
        observed.repeat(cycle[0], arguments)
        time = min(PROBE.probe_time(observed.handle, cycle, arguments, 1000) for _ in range(20))
        print(f"repeat() of GPT-2's outcome, {len(cycle[0])} tensors: {time / 1000:.2f} us")
        self.assertGreater(time, 0)


if __name__ == "__main__":
    main()
