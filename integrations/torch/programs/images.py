"""Models of diffusers with random weights, which train and make pictures. Their noise is from the CPU."""

import torch
from program import count, program, train
from torch.nn import functional as F


def network():
    from diffusers import UNet2DModel

    return UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip


@program("diffusers")
def diffusion(device):
    """A UNet that learns to take noise away, with the schedule of DDPM"""
    from diffusers import DDPMScheduler

    model, schedule = network().to(device), DDPMScheduler(num_train_timesteps=50)
    clean, noise = torch.rand(4, 1, 8, 8).to(device), torch.randn(4, 1, 8, 8).to(device)
    times = torch.randint(50, (4,)).to(device)
    noisy = schedule.add_noise(clean, noise, times)
    return train(model, lambda model: F.mse_loss(model(noisy, times).sample, noise), steps=3)


@program("diffusers", tolerance=1e-4, because="six passes through the network, one upon the other, amplify rounding")
def sampled_pictures(device):
    """Pictures by pipelines of DDPM and DDIM, with a generator of the CPU"""
    from diffusers import DDIMPipeline, DDIMScheduler, DDPMPipeline, DDPMScheduler

    model = network().to(device).eval()
    found = {"parameters": count(model)}
    for name, pipeline, schedule in [
        ("ddpm", DDPMPipeline, DDPMScheduler(num_train_timesteps=50)),
        ("ddim", DDIMPipeline, DDIMScheduler(num_train_timesteps=50)),
    ]:
        made = pipeline(unet=model, scheduler=schedule).to(device)
        made.set_progress_bar_config(disable=True)
        options = {"batch_size": 2, "num_inference_steps": 6, "output_type": "np"}
        found[name] = torch.from_numpy(made(generator=torch.Generator("cpu").manual_seed(1), **options).images)
    return found


@program("diffusers")
def autoencoder(device):
    """An autoencoder of pictures, in tiles too"""
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(8, 16), norm_num_groups=4, latent_channels=2, sample_size=16,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    ).to(device)  # fmt: skip
    pictures = torch.rand(2, 3, 16, 16).to(device)

    def loss(model):
        posterior = model.encode(pictures).latent_dist
        return F.mse_loss(model.decode(posterior.mode()).sample, pictures) + 1e-3 * posterior.kl().mean()

    found = train(model, loss, steps=2)
    model.enable_tiling()
    with torch.no_grad():
        return found | {"sample": model.decode(torch.ones(1, 2, 16, 16).to(device)).sample}
