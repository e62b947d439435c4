"""Models of torchvision and timm with random weights, and the operators of detection."""

import torch
from program import count, gradients_of, program, train
from torch.nn import functional as F

# So far apart are gradients in float32 and float64 on the CPU too: norms over few numbers amplify rounding.
DEEP = {"tolerance": 5e-5, "because": "many layers with norms over few numbers, which amplify rounding"}


def trained(model, device, size):
    """Trains a model of pictures on four of them, and samples its output in `eval`.

    In one step: in the next a number beside the kink of a ReLU may be on its other side, as soon as two devices differ
    in a last bit, and that is another gradient.
    """
    model = model.to(device)
    pictures, labels = torch.randn(4, 3, size, size).to(device), torch.randint(10, (4,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    found = train(model, lambda model: F.cross_entropy(model(pictures), labels), optimizer, steps=1)
    model.eval()
    with torch.no_grad():
        return found | {"sample": model(pictures)}


@program("torchvision", **DEEP)
def resnet(device):
    """ResNet-18"""
    import torchvision

    return trained(torchvision.models.resnet18(num_classes=10), device, 48)


@program("torchvision", **DEEP)
def mobilenet(device):
    """MobileNet v3: convolutions in groups, hard sigmoids"""
    import torchvision

    return trained(torchvision.models.mobilenet_v3_small(num_classes=10, dropout=0.0), device, 48)


@program("torchvision")
def swin(device):
    """Swin transformer: shifted windows, positions by index"""
    from torchvision.models.swin_transformer import SwinTransformer

    model = SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=10)
    return trained(model, device, 64)


@program("torchvision", **DEEP)
def segmentation(device):
    """Segmentation: dilated convolutions, pooling of the whole picture, bilinear interpolation"""
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4).to(device)
    pictures, labels = torch.randn(2, 3, 64, 64).to(device), torch.randint(4, (2, 64, 64)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return train(model, lambda model: F.cross_entropy(model(pictures)["out"], labels), optimizer, steps=1)


@program("torchvision")
def detection_operators(device):
    """Operators of torchvision in C++: `nms`, `roi_align`, `roi_pool`, `deform_conv2d`, with gradients"""
    from torchvision import ops

    corners = torch.rand(40, 2) * 20
    boxes = torch.cat([corners, corners + 1 + torch.rand(40, 2) * 8], 1).to(device)
    scores, kinds = torch.rand(40).to(device), torch.randint(3, (40,)).to(device)
    features = torch.randn(2, 4, 16, 16).to(device).requires_grad_()
    regions = torch.cat([torch.randint(2, (40, 1)).to(device), boxes / 2], 1)
    offsets = torch.randn(2, 18, 14, 14).to(device).requires_grad_()
    weight = torch.randn(5, 4, 3, 3).to(device).requires_grad_()
    parts = {
        "align": ops.roi_align(features, regions, (3, 3), spatial_scale=0.8, sampling_ratio=2),
        "pool": ops.roi_pool(features, regions, (3, 3)),
        "position": ops.ps_roi_align(features, regions, (2, 2)),
        "deformed": ops.deform_conv2d(features, offsets, weight),
    }
    sum(part.square().sum() for part in parts.values()).backward()
    kept = {
        "nms": ops.nms(boxes, scores, 0.3), "batched": ops.batched_nms(boxes, scores, kinds, 0.3),
        "overlap": ops.box_iou(boxes, boxes), "generalized": ops.generalized_box_iou(boxes, boxes.flip(0)),
    }  # fmt: skip
    return kept | parts | {"gradient": [features.grad, offsets.grad, weight.grad]}


@program("torchvision")
def faster_rcnn(device):
    """Faster R-CNN: its losses, gradients and detections"""
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    body = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, stride=2, padding=1), torch.nn.ReLU(),
    )  # fmt: skip
    body.out_channels = 16
    # All proposals are kept: which ones of them are drawn for the loss is random.
    model = FasterRCNN(
        body, num_classes=4, min_size=64, max_size=64, rpn_anchor_generator=AnchorGenerator(((16, 32),), ((0.5, 1.0),)),
        rpn_batch_size_per_image=10_000, box_batch_size_per_image=10_000, box_detections_per_img=10,
        rpn_pre_nms_top_n_train=50, rpn_post_nms_top_n_train=20,
    ).to(device)  # fmt: skip
    pictures = [torch.rand(3, 64, 56).to(device), torch.rand(3, 48, 64).to(device)]
    targets = [
        {
            "boxes": torch.tensor([[4.0, 6, 30, 40], [20, 10, 50, 44]]).to(device),
            "labels": torch.tensor([1, 3]).to(device),
        },
        {"boxes": torch.tensor([[8.0, 8, 24, 24]]).to(device), "labels": torch.tensor([2]).to(device)},
    ]
    losses = model(pictures, targets)
    sum(losses.values()).backward()
    model.eval()
    with torch.no_grad():
        # Scores so far apart that rounding does not change their order.
        model.rpn.head.cls_logits.weight.mul_(50)
        model.roi_heads.box_predictor.cls_score.weight.mul_(20)
        detected = model(pictures)
    return {"parameters": count(model), "loss": losses, "gradient": gradients_of(model), "detected": detected}


@program("torchvision")
def transforms(device):
    """Transforms of pictures, version 2: resizing, rotation, perspective, color, of a device's tensors"""
    from torchvision.transforms.v2 import functional as T

    pictures = torch.randint(256, (2, 3, 20, 24), dtype=torch.uint8).to(device)
    smooth = T.to_dtype(pictures, torch.float32, scale=True)
    # Not of bytes: rounding to one is another byte for a last bit.
    return {
        "resized": T.resize(smooth, [11, 17], antialias=True), "rotated": T.rotate(smooth, 30.0),
        "color": T.adjust_hue(T.adjust_contrast(smooth, 1.3), 0.1), "blurred": T.gaussian_blur(smooth, [5, 5]),
        "perspective": T.perspective(smooth, [[0, 0], [23, 0], [23, 19], [0, 19]], [[2, 1], [20, 3], [22, 18], [1, 17]]),
        "bytes": T.equalize(T.solarize(T.hflip(pictures), 128)), "erased": T.erase(pictures, 2, 3, 5, 6, 7),
    }  # fmt: skip


@program("timm")
def convnext(device):
    """ConvNeXt: large kernels in groups, norms over channels"""
    import timm

    model = timm.create_model(
        "convnext_atto", num_classes=10, depths=(1, 1, 2, 1), dims=(8, 16, 32, 64), drop_path_rate=0.0
    )
    return trained(model, device, 64)


@program("timm")
def timm_vit(device):
    """ViT of timm, with its own optimizer and an average of weights"""
    import timm
    import timm.optim
    import timm.utils

    model = timm.create_model(
        "vit_tiny_patch16_224", num_classes=10, img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3
    ).to(device)
    pictures, labels = torch.randn(4, 3, 32, 32).to(device), torch.randint(10, (4,)).to(device)
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=0.01, momentum=0.9, weight_decay=0.05)
    average = timm.utils.ModelEmaV3(model, decay=0.9)
    found = train(model, lambda model: F.cross_entropy(model(pictures), labels), optimizer, steps=2)
    average.update(model)
    return found | {"average": dict(average.module.named_parameters())}


@program("timm", **DEEP)
def ghostnet(device):
    """GhostNet: cheap convolutions, squeeze and excitation"""
    import timm

    return trained(timm.create_model("ghostnet_050", num_classes=10, drop_rate=0.0), device, 48)


@program("timm", **DEEP)
def timm_architectures(device):
    """Small architectures of timm: CoAtNet, EfficientNet, NFNet, MambaOut and others"""
    import timm

    found = {"parameters": {}, "loss": {}, "gradient": {}, "sample": {}}
    # What test_maxvit has before a norm has a gradient of rounding alone.
    for name in timm.list_models("test_*", exclude_filters="test_maxvit"):
        model = timm.create_model(name, num_classes=4, drop_rate=0.0, drop_path_rate=0.0).to(device)
        for layer in model.modules():
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0
        pictures, labels = torch.randn(4, 3, 160, 160).to(device), torch.arange(4, device=device)
        loss = F.cross_entropy(model(pictures), labels)
        loss.backward()
        found["parameters"][name] = count(model)
        found["loss"][name] = loss
        found["gradient"][name] = gradients_of(model)
        model.eval()
        with torch.no_grad():
            found["sample"][name] = model(pictures)
    return found


@program("torchvision", **DEEP)
def optical_flow(device):
    """RAFT: correlations of two pictures, looked up by `grid_sample` in turns"""
    import torchvision

    model = torchvision.models.optical_flow.raft_small().to(device)
    picture = torch.rand(1, 3, 128, 128).to(device)
    loss = lambda model: model(picture, picture.roll(1, -1), num_flow_updates=2)[-1].abs().mean()
    return train(model, loss, torch.optim.SGD(model.parameters(), lr=1e-4), steps=1)


@program("torchvision", **DEEP)
def video(device):
    """R3D: convolutions over time"""
    import torchvision

    model = torchvision.models.video.r3d_18(num_classes=4).to(device)
    films, labels = torch.randn(4, 3, 8, 32, 32).to(device), torch.arange(4, device=device)
    return train(
        model,
        lambda model: F.cross_entropy(model(films), labels),
        torch.optim.SGD(model.parameters(), lr=0.01),
        steps=1,
    )
