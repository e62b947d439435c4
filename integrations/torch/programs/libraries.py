"""Programs of libraries around a training: peft, lightning, accelerate, torchmetrics."""

import tempfile

import torch
from program import count, program, train, weights_of
from torch import nn
from torch.nn import functional as F


def small_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=64, n_positions=24, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
        )
    )


@program("peft", "transformers")
def lora(device):
    """LoRA on a GPT2: the adapter trains, is merged, saved and loaded"""
    from peft import LoraConfig, PeftModel, get_peft_model

    base = small_gpt2()
    original = weights_of(base)
    # Else B is zero, and A has no gradient.
    config = LoraConfig(
        r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False
    )
    model = get_peft_model(base, config).to(device)
    ids = torch.randint(64, (3, 12)).to(device)
    optimizer = torch.optim.SGD((weight for weight in model.parameters() if weight.requires_grad), lr=0.1)
    found = train(model, lambda model: model(input_ids=ids, labels=ids).loss, optimizer, steps=3)
    model.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        found["adapted"] = model(input_ids=ids).logits
        model.save_pretrained(folder)
        again = small_gpt2()
        again.load_state_dict(original)
        again = PeftModel.from_pretrained(again.to(device), folder).eval()
        found["loaded"] = again(input_ids=ids).logits
        found["merged"] = model.merge_and_unload()(input_ids=ids).logits
    return found


def place_of(device):
    """Options of lightning's trainer for a device: one that it does not know needs a class, and a strategy that names it."""
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.strategies import SingleDeviceStrategy

    if device == "cpu":
        return {"accelerator": "cpu", "devices": 1}

    class Registered(Accelerator):
        def setup_device(self, place):
            torch.accelerator.set_device_index(place.index)

        def teardown(self):
            torch.accelerator.empty_cache()

        @staticmethod
        def parse_devices(devices):
            return devices

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device(device, index) for index in range(devices)]

        @staticmethod
        def auto_device_count():
            return torch.accelerator.device_count()

        @staticmethod
        def is_available():
            return torch.accelerator.is_available()

        @staticmethod
        def name():
            return device

    return {"strategy": SingleDeviceStrategy(torch.device(device, 0), accelerator=Registered())}


@program("lightning")
def lightning(device):
    """Lightning with an accelerator class of one's own: training, validation, a file to go on from"""
    import lightning as L

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5))
            self.losses, self.places = [], set()

        def training_step(self, batch):
            loss = F.cross_entropy(self.network(batch[0]), batch[1])
            self.losses.append(loss.item())
            self.places.add(batch[0].device.type)
            return loss

        def validation_step(self, batch):
            self.log("validated", F.cross_entropy(self.network(batch[0]), batch[1]))

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    model = Model()
    data = torch.utils.data.TensorDataset(torch.randn(24, 12), torch.randint(5, (24,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "logger": False, "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder,
        }  # fmt: skip
        trainer = L.Trainer(max_epochs=2, **place_of(device), **options)
        trainer.fit(model, loader, loader)
        trainer.save_checkpoint(f"{folder}/half")
        # Lightning brings the model back to the CPU.
        found = {
            "loss": list(model.losses),
            "validated": trainer.callback_metrics["validated"],
            "half": weights_of(model),
        }
        again = Model()
        L.Trainer(max_epochs=4, **place_of(device), **options).fit(
            again, loader, ckpt_path=f"{folder}/half", weights_only=False
        )
    assert model.places == again.places == {device}
    return found | {"again": again.losses, "weight": weights_of(again)}


@program("accelerate", "transformers")
def dispatched(device):
    """Accelerate: layers on several devices, and weights that stay on the CPU until they are used"""
    import accelerate

    last = "cpu" if device == "cpu" else f"{device}:{torch.accelerator.device_count() - 1}"
    first = "cpu" if device == "cpu" else f"{device}:0"
    ids = torch.randint(64, (2, 9))
    found = {"parameters": count(small_gpt2())}
    with torch.no_grad():
        plan = {"transformer.wte": first, "transformer.wpe": first, "transformer.drop": first}
        plan |= {"transformer.h.0": first, "transformer.h.1": last, "transformer.ln_f": last, "lm_head": first}
        torch.manual_seed(1)
        model = accelerate.dispatch_model(small_gpt2().eval(), plan, main_device=first)
        found["dispatched"] = model(ids.to(first)).logits
        torch.manual_seed(1)
        model = accelerate.cpu_offload(small_gpt2().eval(), execution_device=torch.device(first))
        found["offloaded"] = model(ids.to(first)).logits
        with accelerate.init_empty_weights():
            empty = small_gpt2()
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as folder:
            torch.save(small_gpt2().state_dict(), f"{folder}/weights.bin")
            empty = accelerate.load_checkpoint_and_dispatch(empty, f"{folder}/weights.bin", {"": first}).eval()
        found["loaded"] = empty(ids.to(first)).logits
    return found


@program("safetensors", "transformers")
def pretrained(device):
    """A model that is saved and comes back by `from_pretrained(device_map=…)`, and by safetensors and `.to`"""
    from safetensors.torch import load_file
    from transformers import GPT2LMHeadModel

    ids = torch.randint(64, (2, 9)).to(device)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model = small_gpt2().to(device)
        model.save_pretrained(folder)
        mapped = GPT2LMHeadModel.from_pretrained(folder, device_map=device)
        # safetensors knows its own list of devices.
        weights = {name: weight.to(device) for name, weight in load_file(f"{folder}/model.safetensors").items()}
        by_hand = small_gpt2().to(device)
        by_hand.load_state_dict(weights, strict=False)
        return {
            "tied": [model.lm_head.weight is model.transformer.wte.weight for model in (model, mapped, by_hand)],
            "output": [model.eval()(input_ids=ids).logits for model in (model, mapped, by_hand)],
            "weight": weights_of(mapped),
        }


@program("torchmetrics")
def metrics(device):
    """Metrics of classes, regression, pictures and texts, which add up over batches"""
    import torchmetrics as M

    several = {"task": "multiclass", "num_classes": 4}
    collection = M.MetricCollection(
        {
            "accuracy": M.Accuracy(**several), "f1": M.F1Score(**several, average="macro"), "auroc": M.AUROC(**several),
            "precision": M.AveragePrecision(**several), "confusion": M.ConfusionMatrix(**several),
            "calibration": M.CalibrationError(**several),
        }
    ).to(device)  # fmt: skip
    others = {
        "mse": M.MeanSquaredError(), "r2": M.R2Score(), "pearson": M.PearsonCorrCoef(),
        "spearman": M.SpearmanCorrCoef(), "mean": M.MeanMetric(),
    }  # fmt: skip
    structure = M.image.StructuralSimilarityIndexMeasure(data_range=1.0).to(device)
    perplexity = M.text.Perplexity(ignore_index=0).to(device)
    for metric in others.values():
        metric.to(device)
    for _ in range(3):
        scores, labels = torch.randn(16, 4).softmax(1).to(device), torch.randint(4, (16,)).to(device)
        collection.update(scores, labels)
        a, b = torch.randn(16).to(device), torch.randn(16).to(device)
        for name, metric in others.items():
            metric.update(a) if name == "mean" else metric.update(a, b)
        picture = torch.rand(2, 1, 16, 16).to(device)
        structure.update(picture, picture * 0.9 + torch.rand(2, 1, 16, 16).to(device) * 0.1)
        perplexity.update(torch.randn(2, 5, 8).softmax(-1).to(device), torch.randint(8, (2, 5)).to(device))
    found = {"class": collection.compute(), "other": {name: metric.compute() for name, metric in others.items()}}
    return found | {"structure": structure.compute(), "perplexity": perplexity.compute()}
