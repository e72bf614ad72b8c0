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

    def segformer(self):
        return self.make("SegformerForSemanticSegmentation", "SegformerConfig", num_encoder_blocks=2, depths=[1, 1],
                         hidden_sizes=[8, 16], num_attention_heads=[1, 2], sr_ratios=[2, 1], patch_sizes=[7, 3],
                         strides=[4, 2], mlp_ratios=[2, 2], decoder_hidden_size=8, num_labels=2)

    def test_segformer(self):
        """Its layers' outputs are collected by hooks, which the first call installs."""
        model = self.segformer()
        make = lambda: (aligned(torch.ones(1, 3, 32, 32)),)  # noqa: E731
        self.assertIn("the call changed the module", Observed(model, make(), model).reason())
        self.check(lambda pixels: model(pixels), make, model)
        self.check(lambda pixels: model(pixels, output_hidden_states=True), make, model)

    def test_bert_with_hidden_states(self):
        model = self.make("BertModel", "BertConfig", num_hidden_layers=2, hidden_size=8, intermediate_size=16,
                          num_attention_heads=2, vocab_size=32)
        make = lambda: (self.tokens(4),)  # noqa: E731
        with torch.no_grad():
            model(*make(), output_hidden_states=True)
        self.check(lambda ids: model(input_ids=ids), make, model)
        self.check(lambda ids: model(input_ids=ids, output_hidden_states=True), make, model)

    def test_mamba_makes_its_cache(self):
        """Whose tensors are marked as having addresses that stay."""
        for name in ("Mamba", "Mamba2"):
            sizes = {"num_heads": 4, "head_dim": 4, "n_groups": 1, "expand": 2} if name == "Mamba2" else {}
            model = self.make(name + "ForCausalLM", name + "Config", num_hidden_layers=2, hidden_size=8, vocab_size=32,
                              state_size=4, **sizes)
            with torch.no_grad():
                model(*(self.tokens(3),))
            self.check(lambda ids: model(input_ids=ids), lambda: (self.tokens(3),), model)  # noqa: B023
            cache = model(self.tokens(3)).cache_params
            self.assertTrue(vars(cache.layers[0].conv_states[0]))

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
